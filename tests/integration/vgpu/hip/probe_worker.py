"""A process that probes flash attention on every virtual device as ComfyUI does, and prints what it finds as
JSON, a line per device.

The probe: PyTorch's gate, one fp16 call of shape (1, 1, 8, 64), synchronisation, and the pending error, which
is read twice.

python -m tests.integration.vgpu.hip.probe_worker DEVICE CALLS NAME (libraries of tests/fixtures/pytorch, and
the name of its operators)
"""

from __future__ import annotations

import ctypes
import json
import math
import sys
from typing import Any

import numpy as np

from kernels.flash.call import Case

PROBE = Case(dtype="fp16", batch=1, heads_q=1, heads_k=1, seqlen_q=8, seqlen_k=8, head_dim=64, sm_scale=0.125)


class Probe:
    """The probe's tensors on the current device."""

    def __init__(self, hip: ctypes.CDLL, calls: Any) -> None:
        import torch

        self._hip, self._calls, self._device = hip, calls, torch.ops.aotforge_device
        inputs = PROBE.inputs()
        here = {name: torch.from_numpy(inputs[name].astype(np.float16)) for name in "QKV"}
        here["Out"] = torch.full(PROBE.shape("Q"), math.nan, dtype=torch.float16)
        here["L"] = torch.full((1, PROBE.seqlen_q), math.nan)
        self._tensors = {name: self._device.upload(tensor) for name, tensor in here.items()}

    def _forward(self) -> int:
        return int(self._calls.forward(self._tensors, {}, PROBE.sm_scale, 0.0))

    def found(self) -> dict[str, Any]:
        """Results of the gate and of both kinds of callers: one drops the call's result, the other throws
        after clearing the error."""
        checked = self._calls.check_gpu()
        after_check = self._hip.hipGetLastError()
        dropped = self._forward()
        pending = [self._hip.hipDeviceSynchronize(), self._hip.hipGetLastError(), self._hip.hipGetLastError()]
        thrown = self._forward()
        if thrown:
            self._hip.hipGetLastError()  # C10_HIP_CHECK clears it before it throws
        later = [self._hip.hipDeviceSynchronize(), self._hip.hipGetLastError()]
        out, lse = (self._device.download(self._tensors[name]).double().tolist() for name in ("Out", "L"))
        return {
            "check": [checked, after_check], "dropped": [dropped, *pending], "thrown": [thrown, *later],
            "out": out, "lse": lse,
        }  # fmt: skip


def main() -> None:
    import torch

    hip, count = ctypes.CDLL("libamdhip64.so.7"), ctypes.c_int()
    for library in sys.argv[1:3]:
        ctypes.CDLL(library)
    assert hip.hipGetDeviceCount(ctypes.byref(count)) == 0
    for device in range(count.value):
        assert hip.hipSetDevice(device) == 0
        sys.stdout.write(json.dumps(Probe(hip, getattr(torch.ops, sys.argv[3])).found()) + "\n")


if __name__ == "__main__":
    main()
