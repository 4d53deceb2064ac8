"""Attention calls as the library would make them, on guarded numpy buffers, run by the interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from aotforge.interpret.numbers import STORAGE, DType, decode, encode
from aotforge.interpret.run import run_operator
from aotforge.rules import Chip, Scalar
from kernels.flash.rules import FAMILY

Float = npt.NDArray[np.float64]
FOLDER = Path(__file__).parents[3] / "kernels" / "flash"
GFX908 = Chip(arch="gfx908", wavefront=64, matrix="MFMA", lds_bytes=65536)
DTYPE_KEY: Mapping[DType, int] = {"fp32": 1, "fp16": 2, "bf16": 3}
_CANARY = {2: 0x7FD5, 4: 0x7FD5AA55}  # NaN in every type, with a payload that no kernel produces


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Order of batch, head and row from the outermost in, and where the tensor starts.

    `row_padding` elements follow each row and `spare_rows` rows each head's last one; they hold canaries.
    """

    order: tuple[int, int, int] = (0, 1, 2)
    row_padding: int = 0
    spare_rows: int = 0
    offset: int = 64

    def strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        strides, step = [0, 0, 0, 1], shape[3] + self.row_padding
        for axis in reversed(self.order):
            strides[axis] = step
            step *= max(shape[axis] + (self.spare_rows if axis == 2 else 0), 1)
        return tuple(strides)


class Guarded:
    """A tensor inside a larger buffer of canaries, which are NaN: reading one shows in the result, writing
    one in `intact`.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: DType, layout: Layout, values: Float | None = None
    ) -> None:
        self.shape, self.dtype = shape, dtype
        self.strides = layout.strides(shape)
        extent = sum((n - 1) * s for n, s in zip(shape, self.strides, strict=True)) + 1 if min(shape) else 0
        itemsize = STORAGE[dtype].itemsize
        bits = np.dtype(f"u{itemsize}")
        raw = np.full(layout.offset + extent + 64 + 32, _CANARY[itemsize], dtype=bits)
        skew = (
            -raw.ctypes.data % 64
        ) // itemsize  # offsets of 64 elements are then aligned, odd ones are not
        self.storage = raw[skew : skew + layout.offset + extent + 64]
        self._origin = layout.offset
        if values is not None:
            self.bits()[...] = encode(values, dtype).view(bits)
        self._before = self.storage.copy()

    @property
    def address(self) -> int:
        return int(self.storage.ctypes.data) + self._origin * self.storage.itemsize

    def bits(self) -> npt.NDArray[Any]:
        return np.lib.stride_tricks.as_strided(
            self.storage[self._origin :], self.shape, tuple(s * self.storage.itemsize for s in self.strides)
        )

    def values(self) -> Float:
        return decode(np.ascontiguousarray(self.bits()).view(STORAGE[self.dtype]), self.dtype)

    def intact(self) -> bool:
        """No element outside of the tensor has changed."""
        after = self.storage.copy()
        inside = np.lib.stride_tricks.as_strided(
            after[self._origin :], self.shape, tuple(s * after.itemsize for s in self.strides)
        )
        before = np.lib.stride_tricks.as_strided(
            self._before[self._origin :], self.shape, tuple(s * after.itemsize for s in self.strides)
        )
        inside[...] = before
        return bool(np.array_equal(after, self._before))

    def unchanged(self) -> bool:
        return bool(np.array_equal(self.storage, self._before))


@dataclass(frozen=True, kw_only=True)
class Case:
    """One attention problem. `window_right` None is full attention."""

    dtype: DType = "fp16"
    batch: int = 1
    heads_q: int = 1
    heads_k: int = 1
    seqlen_q: int = 16
    seqlen_k: int = 16
    head_dim: int = 32
    window_right: int | None = None
    sm_scale: float = 0.25
    layout: Layout = Layout()
    seed: int = 0

    def shape(self, name: str) -> tuple[int, int, int, int]:
        keys = name in {"K", "V", "DK", "DV"}
        heads, rows = (self.heads_k, self.seqlen_k) if keys else (self.heads_q, self.seqlen_q)
        return (self.batch, heads, rows, self.head_dim)

    def inputs(self) -> dict[str, Float]:
        """Q, K, V and DO, already rounded to the case's dtype."""
        rng = np.random.default_rng(self.seed)
        drawn = {name: rng.standard_normal(self.shape(name)) for name in ("Q", "K", "V", "DO")}
        return {name: decode(encode(values, self.dtype), self.dtype) for name, values in drawn.items()}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the kernels wrote, in logical shapes; rows of L and D are (batch, heads, seqlen_q)."""

    out: Float
    lse: Float
    delta: Float
    dq: Float
    dk: Float
    dv: Float
    tensors: Mapping[str, Guarded]


_LETTERS = {"Q": "q", "K": "k", "V": "v", "Out": "o", "DO": "do", "DK": "dk", "DV": "dv", "DQ": "dq"}


def values_of(case: Case, tensors: Mapping[str, Guarded]) -> dict[str, int | float]:
    """The operator values that the C++ library derives from such a call."""
    values: dict[str, int | float] = {
        "batch": case.batch,
        "num_head_q": case.heads_q,
        "num_head_k": case.heads_k,
        "group": case.heads_q // case.heads_k,
        "seqlen_q": case.seqlen_q,
        "seqlen_k": case.seqlen_k,
        "head_dim": case.head_dim,
        "head_dim_v": case.head_dim,
        "sm_scale": case.sm_scale,
        "dtype": DTYPE_KEY[case.dtype],
        "causal": 0 if case.window_right is None else 1,
        "window_right": 0 if case.window_right is None else case.window_right,
        "bias_type": 0,
        "dropout": 0,
        "varlen_type": 0,
    }
    for name, tensor in tensors.items():
        values[name] = tensor.address
        if name in _LETTERS:
            row = "n" if name in {"K", "V", "DK", "DV"} else "m"
            for axis, stride in zip("zh" + row, tensor.strides[:3], strict=True):
                values[f"stride_{_LETTERS[name]}{axis}"] = stride
        else:
            values[f"stride_{name.lower()}z"] = tensor.strides[2]
    return values


def _vector(case: Case) -> Guarded:
    # three elements between rows: L and D need not be dense
    shape = (1, 1, case.batch * case.heads_q, case.seqlen_q)
    return Guarded(shape, "fp32", Layout(row_padding=3))


def run_case(
    case: Case,
    *,
    override: Mapping[str, Scalar] | None = None,
    values: Mapping[str, int | float] | None = None,
    folder: Path = FOLDER,
) -> Outcome:
    """Forward, then backward from the forward's own results, on gfx908's configurations.

    `override` replaces constants such as block sizes, `values` operator values such as strides, `folder` the
    kernels' sources.
    """
    inputs = case.inputs()
    tensors = {name: Guarded(case.shape(name), case.dtype, case.layout, inputs[name]) for name in inputs}
    for name in ("Out", "DQ", "DK", "DV"):
        tensors[name] = Guarded(case.shape(name), case.dtype, case.layout)
    tensors["L"], tensors["D"] = _vector(case), _vector(case)
    call = {**values_of(case, tensors), **(values or {})}
    buffers = {name: tensor.storage for name, tensor in tensors.items()}
    for operator in ("attn_fwd", "attn_bwd"):
        run_operator(FAMILY, folder, operator, chip=GFX908, values=call, buffers=buffers, override=override)
    rows = (case.batch, case.heads_q, case.seqlen_q)
    return Outcome(
        out=tensors["Out"].values(),
        lse=tensors["L"].values().reshape(rows),
        delta=tensors["D"].values().reshape(rows),
        dq=tensors["DQ"].values(),
        dk=tensors["DK"].values(),
        dv=tensors["DV"].values(),
        tensors=tensors,
    )
