"""A process that makes drawn calls through PyTorch's adapter on a virtual GPU and compares the results with
float64.

A call is a forward pass, and a backward pass that takes the forward's own results. Bounds are those of
kernels/flash.

python -m tests.integration.vgpu.hip.any_call_worker DEVICE LEVEL=CALLS ... < numbers of calls (libraries of
tests/fixtures/pytorch)
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from aotforge.verify.tensors import Float, Guarded
from kernels.flash.bounds import bounds
from kernels.flash.call import Case, arrays_of, tensor_of
from tests.integration.pytorch.device import Library, LibraryError, load_libraries

from .any_call import Call, drawn

_RESULTS = {"out": "Out", "lse": "L", "dq": "DQ", "dk": "DK", "dv": "DV", "db": "DB"}


class Caller:
    """Makes calls on the current device, by the library of each API level."""

    def __init__(self, libraries: Mapping[str, Library]) -> None:
        self._libraries = libraries

    def shares(self, call: Call) -> dict[str, float]:
        """Each result's largest error as a share of its bound. Raises LibraryError."""
        case = call.case
        inputs = case.inputs()
        given = {name: tensor_of(case, name, inputs[name]) for name in inputs if name != "DO"}
        given |= arrays_of(case)
        made = {name: tensor_of(case, name) for name in ("Out", "L")}
        self._make(call, "forward", given, made)
        if call.backward:
            names = ["DQ", "DK", "DV", *(["DB"] if case.bias and call.db else [])]
            results = {name: tensor_of(case, name) for name in names}
            # what the forward pass wrote is read
            read = {name: tensor_of(case, name, _logical(case, name, made[name])) for name in made}
            self._make(call, "backward", given | read | {"DO": tensor_of(case, "DO", inputs["DO"])}, results)
            made |= results
        return shares_of(case, inputs, {name: _logical(case, name, tensor) for name, tensor in made.items()})

    def _make(
        self, call: Call, function: str, inputs: Mapping[str, Guarded], outputs: Mapping[str, Guarded]
    ) -> None:
        """Raises LibraryError, also for memory beside a tensor that was written."""
        given, made = (
            {_FIELDS.get(name, name): _view(call.case, name, tensor) for name, tensor in tensors.items()}
            for tensors in (inputs, outputs)
        )
        self._libraries[call.level].call(function, given, made, **_numbers(call))
        for name, tensor in outputs.items():
            if not tensor.intact():
                raise LibraryError(f"{function}: memory beside {name} was written")


_FIELDS = {
    "seqinfo_q0": "lengths_q", "seqinfo_k0": "lengths_k", "seqinfo_q1": "positions_q",
        "seqinfo_k1": "positions_k",
    "philox_seed": "seed", "philox_offset1": "offset1",
}  # fmt: skip
_TORCH = {
    "fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "i32": torch.int32,
        "u64": torch.int64,
}  # fmt: skip


def _numbers(call: Call) -> dict[str, float]:
    case = call.case
    masked = case.window_left is not None or case.window_right is not None
    layout = 1 << 16 if case.lse_swapped else 0
    return {
        "sm_scale": case.sm_scale,
        "dropout_p": case.dropout.p if case.dropout else 0.0,
        "offset2": case.dropout.offset2 if case.dropout else 0,
        "masked": int(masked),
        "window_left": 2**31 - 1 if case.window_left is None else case.window_left,
        "window_right": 2**31 - 1 if case.window_right is None else case.window_right,
        "longest_q": case.seqlen_q,
        "longest_k": case.seqlen_k,
        "word": case.varlen.word | layout if case.varlen else 0,
    }


def _view(case: Case, name: str, tensor: Guarded) -> torch.Tensor:
    """As PyTorch has it, in the same memory: L with two dimensions, strides of 0 where a bias is
    broadcast."""
    sizes, strides = list(tensor.shape), list(tensor.strides)
    if name == "B":
        strides = [0 if size == 1 else stride for size, stride in zip(sizes, strides, strict=True)]
        sizes, strides[3] = list(case.shape("B")), 1
    if name == "L":
        sizes, strides = [sizes[0] * sizes[1], sizes[2]], strides[1:]
    if name.startswith("philox"):
        sizes, strides = [], []
    memory = torch.from_numpy(tensor.storage.view(np.uint8)).untyped_storage()
    offset = (tensor.address - int(tensor.storage.ctypes.data)) // tensor.storage.itemsize
    return torch.empty(0, dtype=_TORCH[tensor.dtype]).set_(memory, offset, sizes, strides)


def _logical(case: Case, name: str, tensor: Guarded) -> Float:
    values: Float = tensor.values()
    return np.swapaxes(values, 1, 2) if name == "L" and case.lse_swapped else values


def shares_of(case: Case, inputs: Mapping[str, Float], results: Mapping[str, Float]) -> dict[str, float]:
    """The largest error of each result as a share of its bound."""
    worst = dict.fromkeys(results, 0.0)
    for part in case.parts():
        own = part.all_of(inputs)
        expected = bounds(own["Q"], own["K"], own["V"], own["DO"], case.options(own, part), dtype=case.dtype)
        for key, name in _RESULTS.items():
            if name in results:
                misses = expected[key].misses(part.of(name, results[name]))
                worst[name] = max(worst[name], float(misses.max(initial=0.0)))
    return worst


def main() -> None:
    hip = ctypes.CDLL("libamdhip64.so.7")
    caller = Caller(load_libraries(hip, sys.argv[1], sys.argv[2:]))
    for line in sys.stdin:
        call = drawn(int(line))
        try:
            found: dict[str, Any] = {"shares": caller.shares(call)}
        except LibraryError as error:
            found = {"error": str(error)}
        _write({"number": int(line), "call": repr(call), **found})


def _write(values: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
