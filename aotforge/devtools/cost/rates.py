"""Rates of archs and instructions for cycle estimates.

docs/virtual-gpu-tools.md has the source of every rate.

Shapes of matrix instructions come from the emulator's instruction table. Cycles of MFMA: passes of 4 cycles
in LLVM's SISchedule.td, which agree with AMD's matrix instruction calculator; WMMA: the calculator for RDNA3,
AMD's published FLOPs per clock for RDNA4.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from aotforge.base.architectures import CostRates, VectorKind, load_architectures
from aotforge.errors import UnsupportedError
from vgpu.emulator.isa import INSTRUCTIONS
from vgpu.emulator.measure import Banks


class IssueModel(CostRates):
    """An arch's rates and one of its products: `units` of `simds` each; `memory_gb` is GB/s."""

    arch: str
    product: str
    units: int
    simds: int
    clock_mhz: int
    memory_gb: float

    @property
    def memory(self) -> float:
        """Bytes per clock from memory, of all units."""
        return self.memory_gb * 1e9 / (self.clock_mhz * 1e6)

    @property
    def banks(self) -> Banks:
        """For measuring."""
        return Banks(count=self.lds_banks, swizzled=self.lds_swizzled)


@cache
def models() -> Mapping[str, IssueModel]:
    """By arch: those whose rows have rates and whose product has a clock and a memory bandwidth."""
    return {
        arch: IssueModel(
            arch=arch,
            product=row.device.product,
            units=row.device.compute_units,
            simds=row.simds_per_cu,
            clock_mhz=row.device.clock_mhz,
            memory_gb=row.device.memory_gb_per_s,
            **{name: getattr(row.cost, name) for name in CostRates.model_fields},
        )
        for arch, row in load_architectures().amd.items()
        if row.cost and row.device.clock_mhz and row.device.memory_gb_per_s
    }


def model_of(arch: str) -> IssueModel:
    """The model of an arch. Raises UnsupportedError without rates."""
    if arch not in models():
        raise UnsupportedError(
            f"the cost model has no rates for {arch}",
            cause="its row in manifests/architectures.yaml has no `cost`, or its `device` no clock",
            hint=f"it has some for {', '.join(models())}",
        )
    return models()[arch]


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


_MATRIX_NAME = re.compile(
    r"v_(?:mfma|wmma)_(?:scale_)?[a-z0-9]+_(\d+)x\d+x(\d+)(?:_\d+b)?_?([a-z]+\d+(?:f6f4)?)\w*"
)
_EIGHT_BITS = frozenset({"i8", "fp8", "bf8"})
_SMALLEST, _DEEP = 4, 8
"""Rows of the smallest instructions, and columns that count as deep."""


def matrix_shape(name: str) -> MatrixShape | None:
    """The shape of a matrix instruction, or None for another. Raises UnsupportedError for one without a known
    shape."""
    entry = INSTRUCTIONS.get(name)
    if entry is None or not name.startswith(("v_mfma", "v_wmma", "v_smfmac", "v_swmmac")):
        return None
    if m := _MATRIX_NAME.fullmatch(name):
        kind = m[3].replace("iu8", "i8")
        return MatrixShape(m=int(m[1]), k=int(m[2]), blocks=entry.blocks or 1, kind=kind)
    raise UnsupportedError(f"the cost model does not know the shape of {name}")


def matrix_cycles(shape: MatrixShape, model: IssueModel) -> int:
    """Cycles that a SIMD's matrix hardware is busy with one instruction; `f8f6f4` is taken as 8 bits."""
    rates = model.matrix
    if rates is None or shape.m not in rates.cycles:
        raise UnsupportedError(f"the cost model has no rates of matrix instructions for {model.arch}")
    if shape.kind == "f64" and rates.double and shape.m != _SMALLEST:
        return rates.double
    kinds = {
        "xf32": shape.kind == "xf32",
        "deep": shape.k >= _DEEP and shape.kind != "f8f6f4",
        "eight bits": shape.kind in _EIGHT_BITS,
    }
    halved = shape.m != _SMALLEST and any(kinds[name] for name in rates.halved)
    return rates.cycles[shape.m] // (2 if halved else 1)


_VECTOR_KINDS: Mapping[VectorKind, str] = {
    "double": r".*f64.*",
    "transcendental": r"v_(s_)?(exp|log|rcp|rcp_iflag|rsq|sqrt|sin|cos)_(f16|f32)",
    "multiply": r"v_(mul_(lo|hi)_[ui]32|mad_[ui]64_[ui]32|mad_co_[ui]64_[ui]32)",
    "wide": r"v_((lshl|lshr|ashr)rev_[bi]64|lshl_add_u64|(add|sub)_(nc_)?u64|cmpx?_\w+_[ui]64)",
    "convert": r"v_cvt_(?!pk)\w+",
}


def vector_kind(name: str) -> VectorKind:
    """Key of a vector instruction in `IssueModel.vector`."""
    return next((kind for kind, pattern in _VECTOR_KINDS.items() if re.fullmatch(pattern, name)), "ordinary")


def vector_cycles(name: str, model: IssueModel) -> int:
    """Cycles that a SIMD's vector unit is busy with one instruction other than a matrix instruction."""
    return model.vector[vector_kind(name)]
