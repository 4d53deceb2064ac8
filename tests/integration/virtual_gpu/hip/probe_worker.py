"""A process that probes flash attention on every virtual device as ComfyUI does, and prints what it finds as JSON, a line per device.

The probe: PyTorch's gate, one fp16 call of shape (1, 1, 8, 64), synchronisation, and the pending error, which is read twice.

python -m tests.integration.virtual_gpu.hip.probe_worker BRIDGE
"""

from __future__ import annotations

import ctypes
import json
import sys
from ctypes import byref, c_float, c_int, c_size_t, c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.flash.call import Case
from tests.integration.pytorch.bridge import BridgeCall, BridgeTensor

PROBE = Case(dtype="fp16", batch=1, heads_q=1, heads_k=1, seqlen_q=8, seqlen_k=8, head_dim=64, sm_scale=0.125)
_TO_DEVICE, _TO_HOST = 1, 2
_FP16, _FP32 = 2, 1


class Probe:
    """The probe's tensors on the current device."""

    def __init__(self, hip: ctypes.CDLL, bridge: ctypes.CDLL) -> None:
        self._hip, self._bridge = hip, bridge
        inputs = PROBE.inputs()
        self._out = np.full(PROBE.shape("Q"), np.nan, np.float16)
        self._lse = np.full((1, PROBE.seqlen_q), np.nan, np.float32)
        self._call = BridgeCall(sm_scale=c_float(PROBE.sm_scale))
        arrays: dict[str, npt.NDArray[Any]] = {name: inputs[name].astype(np.float16) for name in "QKV"}
        arrays |= {"Out": self._out, "L": self._lse}
        self._places = {name: self._uploaded(name, values) for name, values in arrays.items()}

    def _uploaded(self, name: str, values: npt.NDArray[Any]) -> c_void_p:
        at = c_void_p()
        assert self._hip.hipMalloc(byref(at), c_size_t(values.nbytes)) == 0
        pointer = values.ctypes.data_as(c_void_p)
        assert self._hip.hipMemcpy(at, pointer, c_size_t(values.nbytes), c_int(_TO_DEVICE)) == 0
        field = BridgeTensor(base=at.value, dtype=_FP32 if name == "L" else _FP16, given=1)
        for axis, size in enumerate(values.shape):
            field.sizes[axis], field.strides[axis] = size, values.strides[axis] // values.itemsize
        setattr(self._call, name, field)
        return at

    def found(self) -> dict[str, Any]:
        """Results of the gate and of both kinds of callers: one drops the call's result, the other throws after clearing the error."""
        checked = self._bridge.bridge_check_gpu()
        after_check = self._hip.hipGetLastError()
        dropped = self._bridge.bridge_forward(byref(self._call))
        pending = [self._hip.hipDeviceSynchronize(), self._hip.hipGetLastError(), self._hip.hipGetLastError()]
        thrown = self._bridge.bridge_forward(byref(self._call))
        if thrown:
            self._hip.hipGetLastError()  # C10_HIP_CHECK clears it before it throws
        later = [self._hip.hipDeviceSynchronize(), self._hip.hipGetLastError()]
        for name, values in (("Out", self._out), ("L", self._lse)):
            pointer = values.ctypes.data_as(c_void_p)
            assert (
                self._hip.hipMemcpy(pointer, self._places[name], c_size_t(values.nbytes), c_int(_TO_HOST))
                == 0
            )
        return {
            "check": [checked, after_check], "dropped": [dropped, *pending], "thrown": [thrown, *later],
            "out": self._out.astype(np.float64).tolist(), "lse": self._lse.astype(np.float64).tolist(),
        }  # fmt: skip


def main() -> None:
    hip, bridge, count = ctypes.CDLL("libamdhip64.so.7"), ctypes.CDLL(sys.argv[1]), c_int()
    assert hip.hipGetDeviceCount(byref(count)) == 0
    for device in range(count.value):
        assert hip.hipSetDevice(device) == 0
        sys.stdout.write(json.dumps(Probe(hip, bridge).found()) + "\n")


if __name__ == "__main__":
    main()
