"""Rates of archs and instructions for cycle estimates.

docs/virtual-gpu-tools.md has the source of every rate.

Shapes of matrix instructions come from the emulator's instruction table. Cycles of MFMA: passes of 4 cycles in LLVM's SISchedule.td,
which agree with AMD's matrix instruction calculator; WMMA: the calculator for RDNA3, AMD's published FLOPs per clock for RDNA4.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aotforge.base.architectures import load_architectures
from aotforge.errors import UnsupportedError
from vgpu.emulator.isa import INSTRUCTIONS
from vgpu.emulator.measure import Banks


@dataclass(frozen=True, kw_only=True)
class IssueModel:
    """One arch; defaults are CDNA's. A unit runs a workgroup: a compute unit, on RDNA a workgroup processor of two (`cus_per_unit`).

    `units` and `simds` (of a unit) are from the manifest. Bandwidths are bytes per clock of a unit, latencies cycles. `vector`: cycles
    that a SIMD's vector unit is busy with one wave-instruction, by `vector_kind`. `issue`: cycles between two instructions of a wave.
    `salu`: cycles of a unit's scalar hardware per instruction. `matrix_apart`: matrix instructions have a pipe of their own.
    `lds_banks` decide conflicts within an access; `lds_pipes` work in parallel; `lds_port`: bytes that each of two pairs of SIMDs can
    send or get (0: not known to bound anything). `l1`: bytes per clock of a unit's vector caches, which take `address_lanes` addresses
    a clock. `memory_gb`: memory bandwidth in GB/s. `scratch_latency`: of a vector cache's hit. `matrix_latency`, `vector_latency`: from the
    end of an instruction until another may use its result; `vector_latency` 0: the wave's next instruction comes only then. `branch`:
    cycles until the instruction behind a taken branch.
    """

    arch: str
    product: str
    units: int
    simds: int
    vector: Mapping[str, int]
    clock_mhz: int
    memory_gb: float
    issue: int = 4
    salu: float = 1
    matrix_apart: bool = True
    lds_banks: int = 32
    lds_swizzled: bool = True
    lds_pipes: int = 1
    lds_port: int = 64
    l1: int = 64
    address_lanes: int = 16
    lds_latency: int = 64
    memory_latency: int = 320
    scratch_latency: int = 142
    vector_latency: int = 0
    matrix_latency: int = 12
    branch: int = 32
    cus_per_unit: int = 1

    @property
    def memory(self) -> float:
        """Bytes per clock from memory, of all units."""
        return self.memory_gb * 1e9 / (self.clock_mhz * 1e6)

    @property
    def banks(self) -> Banks:
        """For measuring."""
        return Banks(count=self.lds_banks, swizzled=self.lds_swizzled)


_GFX908: dict[str, Any] = {
    "vector": {"ordinary": 4, "transcendental": 16, "convert": 16, "multiply": 16, "wide": 8, "double": 8},
    "clock_mhz": 1502,
    "memory_gb": 1228.8,
    "matrix_latency": 8,
}
_GFX90A: dict[str, Any] = {
    "vector": {"ordinary": 4, "transcendental": 16, "convert": 16, "multiply": 4, "wide": 4, "double": 4},
    "clock_mhz": 1700,
    "memory_gb": 1638.4,
}
_RDNA3: dict[str, Any] = {
    "vector": {"ordinary": 1, "transcendental": 4, "convert": 1, "multiply": 4, "wide": 2, "double": 32},
    "clock_mhz": 2500,
    "memory_gb": 960,
    "issue": 1,
    "salu": 0.25,
    "matrix_apart": False,
    "matrix_latency": 4,
    "vector_latency": 4,
    "lds_swizzled": False,
    "lds_pipes": 2,
    "lds_port": 0,
    "l1": 128,
    "address_lanes": 32,
    "cus_per_unit": 2,
}
_DOUBLES_OF_RDNA2 = {"vector": _RDNA3["vector"] | {"double": 16}}
RATES: Mapping[str, dict[str, Any]] = {
    "gfx906": _GFX908 | {"clock_mhz": 1800, "memory_gb": 1024},
    "gfx908": _GFX908,
    "gfx90a": _GFX90A,
    "gfx942": _GFX90A | {"clock_mhz": 2100, "memory_gb": 5325},
    "gfx950": _GFX90A | {"clock_mhz": 2400, "memory_gb": 8000, "lds_banks": 64, "lds_swizzled": False},
    "gfx1030": _RDNA3 | _DOUBLES_OF_RDNA2 | {"clock_mhz": 2250, "memory_gb": 512},
    "gfx1100": _RDNA3,
    "gfx1201": _RDNA3 | {"clock_mhz": 2970, "memory_gb": 640},
}


def model_of(arch: str) -> IssueModel:
    """The model of an arch. Raises UnsupportedError without rates: those of a relative are not used."""
    if arch not in RATES:
        hint = f"it has some for {', '.join(RATES)}"
        raise UnsupportedError(f"the cost model has no rates for {arch}", hint=hint)
    row = load_architectures().amd[arch]
    product, units = row.device.product, row.device.compute_units
    return IssueModel(arch=arch, product=product, units=units, simds=row.simds_per_cu, **RATES[arch])


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


def matrix_shape(name: str) -> MatrixShape | None:
    """The shape of a matrix instruction, or None for another. Raises UnsupportedError for one without a known shape."""
    entry = INSTRUCTIONS.get(name)
    if entry is None or not name.startswith(("v_mfma", "v_wmma", "v_smfmac", "v_swmmac")):
        return None
    if m := _MATRIX_NAME.fullmatch(name):
        kind = m[3].replace("iu8", "i8")
        return MatrixShape(m=int(m[1]), k=int(m[2]), blocks=entry.blocks or 1, kind=kind)
    raise UnsupportedError(f"the cost model does not know the shape of {name}")


def matrix_cycles(shape: MatrixShape, arch: str) -> int:
    """Cycles that a SIMD's matrix hardware is busy with one instruction; `f8f6f4` is taken as 8 bits."""
    if arch.startswith("gfx11"):
        return 32
    if arch.startswith("gfx12"):
        return 8 if shape.kind in _EIGHT_BITS else 16
    if shape.m == 4:
        return 4 * 2
    if shape.kind == "f64":
        return 64 if arch == "gfx950" else 32
    fast = arch in {"gfx942", "gfx950"} and (shape.k >= 8 or shape.kind == "xf32") and shape.kind != "f8f6f4"
    passes = {16: 8, 32: 16}[shape.m]
    return 4 * (passes // 2 if fast else passes)


_VECTOR_KINDS = {
    "double": r".*f64.*",
    "transcendental": r"v_(s_)?(exp|log|rcp|rcp_iflag|rsq|sqrt|sin|cos)_(f16|f32)",
    "multiply": r"v_(mul_(lo|hi)_[ui]32|mad_[ui]64_[ui]32|mad_co_[ui]64_[ui]32)",
    "wide": r"v_((lshl|lshr|ashr)rev_[bi]64|lshl_add_u64|(add|sub)_(nc_)?u64|cmpx?_\w+_[ui]64)",
    "convert": r"v_cvt_(?!pk)\w+",
}


def vector_kind(name: str) -> str:
    """Key of a vector instruction in `IssueModel.vector`."""
    return next((kind for kind, pattern in _VECTOR_KINDS.items() if re.fullmatch(pattern, name)), "ordinary")


def vector_cycles(name: str, model: IssueModel) -> int:
    """Cycles that a SIMD's vector unit is busy with one instruction other than a matrix instruction."""
    return model.vector[vector_kind(name)]
