"""Attention calls drawn from everything that PyTorch's gates let through, and a process that makes them through the public interface.

A call is a forward pass, and a backward pass that takes the forward's own results. What it computes is compared with the float64 reference
by the bounds of kernels/flash.

python -m tests.integration.virtual_gpu.hip.any_call DEVICE LEVEL=CALLS ... < numbers of calls (libraries of tests/fixtures/pytorch)
"""

from __future__ import annotations

import ctypes
import json
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from aotforge.verify.tensors import Float, Guarded, Layout
from kernels.flash.bounds import bounds
from kernels.flash.call import BOTTOM_RIGHT, TOP_LEFT, Bias, Case, Dropout, arrays_of, tensor_of
from kernels.flash.sequences import Varlen
from tests.integration.pytorch.device import Library, LibraryError
from tests.integration.pytorch.grids import minor_of

LEVELS = ("0.11.2b", "0.12.1b", "0.13b", "0.14.2b")
COMPACT, PADDED, STRIDED, USED_KEYS = 0x0B0B, 0x0202, 0x1313, 0x150B
_RESULTS = {"out": "Out", "lse": "L", "dq": "DQ", "dk": "DK", "dv": "DV", "db": "DB"}
_LAYOUTS = (
    Layout(), Layout(order=(0, 2, 1)), Layout(order=(1, 0, 2), row_padding=8), Layout(order=(2, 0, 1), row_padding=3, offset=37),
)  # fmt: skip
_WORK = 3_000_000
"""Products of a call at most: a virtual GPU computes them one after another."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A problem at an API level. `backward`, `db`: what is wanted beside the forward pass."""

    level: str
    case: Case
    backward: bool = True
    db: bool = True


def drawn(number: int) -> Call:
    """The call of this number: always the same."""
    rng = random.Random(number)
    heads_k, batch = rng.randint(1, 2), rng.randint(1, 3)
    dim = rng.choice([rng.randint(1, 512), 8 * rng.randint(1, 64), rng.choice([32, 64, 96, 128, 256, 512])])
    level = rng.choice(LEVELS)
    own_dim = level != LEVELS[0] and rng.random() < 0.3
    case = Case(
        dtype=rng.choice(("fp16", "bf16", "fp32")),
        batch=batch,
        heads_q=heads_k * rng.randint(1, 3),
        heads_k=heads_k,
        seqlen_q=rng.choice([rng.randint(0, 90), rng.randint(1, 20), 1]),
        seqlen_k=rng.choice([rng.randint(0, 90), rng.randint(1, 20), 1]),
        head_dim=dim,
        head_dim_v=rng.randint(1, 512) if own_dim else None,
        sm_scale=rng.choice([dim**-0.5, dim**-0.5, 0.3, -0.1, 0.0]),
        layout=rng.choice(_LAYOUTS),
        mixed=rng.random() < 0.3,
        dropout=Dropout(p=rng.choice([0.1, 0.5, 0.9]), seed=rng.getrandbits(62))
        if rng.random() < 0.4
        else None,
        seed=number,
    )
    case = _smaller(case)
    mask = rng.choice(("none", "causal", "window", "bias"))
    if mask == "bias":
        bias = Bias(
            kind=rng.choice(("normal", "masked", "lowest")),
            broadcast=tuple(axis for axis in range(3) if rng.random() < 0.3),
        )
        return Call(level=level, case=replace(case, bias=bias), db=rng.random() < 0.7)
    if rng.random() < 0.5:
        level, case = _packed(rng, case)
    if mask == "causal":
        side = rng.choice((TOP_LEFT, BOTTOM_RIGHT))
        case = replace(case, window_left=side, window_right=side)
    if mask == "window":
        n_q, n_k = case.seqlen_q, case.seqlen_k
        left = rng.choice([None, rng.randint(-n_k - 2, n_q + 2), rng.randint(0, 9), 2**31 - 1])
        right = rng.choice([rng.randint(-n_q - 2, n_k + 2), rng.randint(0, 9), BOTTOM_RIGHT, 0])
        case = replace(case, window_left=left, window_right=right)
    # PyTorch differentiates no call with lengths of used keys
    backward = case.varlen is None or case.varlen.word not in (STRIDED, USED_KEYS)
    return Call(level=level, case=case, backward=backward)


def _smaller(case: Case) -> Case:
    """With shorter sequences where the call is too much work."""
    work = (
        case.batch
        * case.heads_q
        * case.seqlen_q
        * case.seqlen_k
        * (case.head_dim + (case.head_dim_v or case.head_dim))
    )
    if work <= _WORK:
        return case
    factor = (_WORK / work) ** 0.5
    return replace(case, seqlen_q=int(case.seqlen_q * factor), seqlen_k=int(case.seqlen_k * factor))


def _packed(rng: random.Random, case: Case) -> tuple[str, Case]:
    """The same with sequences of their own lengths, and a level that has their form."""
    word, levels = rng.choice(
        [
            (COMPACT, LEVELS),
            (COMPACT, LEVELS),
            (PADDED, LEVELS),
            (STRIDED, LEVELS[1:3]),
            (USED_KEYS, LEVELS[3:]),
        ]
    )
    level = rng.choice(levels)
    lengths = {
        side: tuple(rng.choice((0, longest, rng.randint(0, longest))) for _ in range(case.batch))
        for side, longest in (("queries", case.seqlen_q), ("keys", case.seqlen_k))
    }
    lse = (
        "rows"
        if level == LEVELS[0]
        else rng.choice(("HT", "TH"))
        if level == LEVELS[-1] and word != PADDED
        else "HT"
    )
    varlen = Varlen(word=word, gap=rng.randint(0, 4), lse=lse, **lengths)  # type: ignore[arg-type]
    head_dim_v = None if level == LEVELS[0] else case.head_dim_v
    return level, replace(case, varlen=varlen, head_dim_v=head_dim_v)


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
        return _shares(case, inputs, {name: _logical(case, name, tensor) for name, tensor in made.items()})

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
    "seqinfo_q0": "lengths_q", "seqinfo_k0": "lengths_k", "seqinfo_q1": "positions_q", "seqinfo_k1": "positions_k",
    "philox_seed": "seed", "philox_offset1": "offset1",
}  # fmt: skip
_TORCH = {
    "fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "i32": torch.int32, "u64": torch.int64,
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
    """As PyTorch has it, in the same memory: L with two dimensions, strides of 0 where a bias is broadcast."""
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


def _shares(case: Case, inputs: Mapping[str, Float], results: Mapping[str, Float]) -> dict[str, float]:
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
    ctypes.CDLL(sys.argv[1])
    libraries = {}
    for word in sys.argv[2:]:
        level, calls = word.split("=", 1)
        ctypes.CDLL(calls)
        libraries[level] = Library(hip, f"aotforge_{minor_of(level)}")
        libraries[level].check_gpu()
    caller = Caller(libraries)
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
