"""What one instruction keeps busy, and for how long: matrix shapes and cycles, kinds of vector instructions, waits.

Shapes come from the emulator's instruction table. Cycles of MFMA: passes of 4 cycles in LLVM's SISchedule.td, which agree with AMD's
matrix instruction calculator; WMMA: the calculator for RDNA3, AMD's published FLOPs per clock for RDNA4.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from aotforge.devtools.cost.arch_rates import IssueModel, Rates
from aotforge.errors import UnsupportedError
from aotforge.virtual_gpu.emulator.isa import INSTRUCTIONS

_MFMA = re.compile(r"mfma\(w, I, (\d+), (\d+), (\d+), IN_(\w+)\)")
_WMMA = re.compile(r"wmma\(w, I, IN_(\w+),")
_TRANSCENDENTAL = re.compile(r"v_(s_)?(exp|log|rcp|rcp_iflag|rsq|sqrt|sin|cos)_(f16|f32)")
_MULTIPLY = re.compile(r"v_(mul_(lo|hi)_[ui]32|mad_[ui]64_[ui]32|mad_co_[ui]64_[ui]32)")
_WIDE = re.compile(r"v_((lshl|lshr|ashr)rev_[bi]64|lshl_add_u64|(add|sub)_(nc_)?u64|cmpx?_\w+_[ui]64)")
_CONVERT = re.compile(r"v_cvt_(?!pk)\w+")


@dataclass(frozen=True, kw_only=True)
class MatrixShape:
    """`blocks` products of m x k by k x m. `kind`: input type."""

    m: int
    k: int
    blocks: int
    kind: str

    @property
    def flops(self) -> int:
        """Multiplications and additions of one instruction."""
        return 2 * self.m * self.m * self.k * self.blocks


def matrix_shape(name: str) -> MatrixShape | None:
    """The shape of a matrix instruction, or None for another. Raises UnsupportedError for one without a known shape."""
    entry = INSTRUCTIONS.get(name)
    if entry is None or not name.startswith(("v_mfma", "v_wmma", "v_smfmac", "v_swmmac")):
        return None
    if m := _MFMA.search(entry.code):
        return MatrixShape(m=int(m[1]), k=int(m[2]), blocks=int(m[3]), kind=m[4].lower())
    if m := _WMMA.search(entry.code):
        return MatrixShape(m=16, k=16, blocks=1, kind=m[1].lower())
    raise UnsupportedError(f"the cost model does not know the shape of {name}")


def matrix_cycles(shape: MatrixShape, arch: str) -> int:
    """Cycles that a SIMD's matrix hardware is busy with one instruction."""
    if arch.startswith("gfx11"):
        return 32
    if arch.startswith("gfx12"):
        return 16
    if shape.m == 4:
        return 4 * 2
    fast = arch in {"gfx942", "gfx950"} and shape.k >= 8
    passes = {16: 8, 32: 16}[shape.m]
    return 4 * (passes // 2 if fast else passes)


def vector_kind(name: str) -> str:
    """Which field of `Rates` holds for a vector instruction."""
    if "f64" in name:
        return "double"
    for pattern, kind in (
        (_TRANSCENDENTAL, "transcendental"),
        (_MULTIPLY, "multiply"),
        (_WIDE, "wide"),
        (_CONVERT, "convert"),
    ):
        if pattern.fullmatch(name):
            return kind
    return "ordinary"


def vector_cycles(name: str, model: IssueModel) -> int:
    """Cycles that a SIMD's vector unit is busy with one instruction that is no matrix one."""
    rates: Rates = model.rates
    return int(getattr(rates, vector_kind(name)))


def waits_of(text: str) -> tuple[bool, bool]:
    """Whether an instruction waits for loads from global memory, and for LDS or scalar loads. Stores are not waited for long."""
    name, _, tail = text.partition(" ")
    if name == "s_waitcnt":
        return "vmcnt" in tail, "lgkmcnt" in tail
    return (
        "loadcnt" in name and name.startswith("s_wait"),
        name.startswith("s_wait") and ("dscnt" in name or "kmcnt" in name),
    )
