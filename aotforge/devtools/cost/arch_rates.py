"""Figures of each chip for cycle estimates: a data table. docs/virtual-gpu-tools.md has the source of every column.

A unit is what a workgroup runs on: a compute unit, on RDNA a workgroup processor of two compute units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aotforge.errors import UnsupportedError
from aotforge.virtual_gpu.emulator.measure import Banks


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Cycles that a SIMD's vector unit is busy with one wave-instruction, by kind (see rates.py)."""

    ordinary: int
    transcendental: int
    convert: int
    multiply: int
    wide: int
    double: int


@dataclass(frozen=True, kw_only=True)
class IssueModel:
    """One chip. Bandwidths are bytes per clock of a unit; latencies are cycles.

    `issue`: cycles between two instructions of a wave. `salu`: cycles of a unit's scalar hardware per instruction. `matrix_apart`:
    matrix instructions have a pipe beside the vector unit's. `lds_banks` decide conflicts within an access; `lds_pipes` work side by
    side; `lds_port` is what each of two pairs of SIMDs can send or get (0: not known to bound anything). `l1`: bytes per clock of a
    unit's vector caches, which take `address_lanes` addresses a clock. `memory`: bytes per clock of the whole chip's memory.
    `published`: FLOPs per clock and compute unit that AMD publishes, by input type.
    """

    name: str
    rates: Rates
    issue: int
    salu: float
    matrix_apart: bool
    lds_banks: int
    lds_swizzled: bool
    lds_pipes: int
    lds_port: int
    l1: int
    address_lanes: int
    lds_latency: int
    memory_latency: int
    units: int
    clock_mhz: int
    memory_gb: float
    published: Mapping[str, int]
    cus_per_unit: int = 1

    @property
    def memory(self) -> float:
        """Bytes per clock from memory, of the whole chip."""
        return self.memory_gb * 1e9 / (self.clock_mhz * 1e6)

    @property
    def banks(self) -> Banks:
        """For measuring."""
        return Banks(count=self.lds_banks, swizzled=self.lds_swizzled)


_GFX908 = IssueModel(
    name="MI100",
    rates=Rates(ordinary=4, transcendental=16, convert=16, multiply=16, wide=8, double=8),
    issue=4,
    salu=1,
    matrix_apart=True,
    lds_banks=32,
    lds_swizzled=True,
    lds_pipes=1,
    lds_port=64,
    l1=64,
    address_lanes=16,
    lds_latency=64,
    memory_latency=320,
    units=120,
    clock_mhz=1502,
    memory_gb=1228.8,
    published={"f32": 256, "f16": 1024, "bf16": 512},
)
_GFX90A = replace(
    _GFX908,
    name="MI210",
    rates=Rates(ordinary=4, transcendental=16, convert=16, multiply=4, wide=4, double=4),
    units=104,
    clock_mhz=1700,
    memory_gb=1638.4,
    published={"f32": 256, "f16": 1024, "bf16": 1024},
)
_GFX942 = replace(
    _GFX90A,
    name="MI300X",
    units=304,
    clock_mhz=2100,
    memory_gb=5325,
    published={"f32": 256, "f16": 2048, "bf16": 2048},
)
_GFX950 = replace(
    _GFX942,
    name="MI355X",
    lds_banks=64,
    lds_swizzled=False,
    units=256,
    clock_mhz=2400,
    memory_gb=8000,
    published={"f32": 256, "f16": 4096, "bf16": 4096},
)
_RDNA3 = IssueModel(
    name="RX 7900 XTX",
    rates=Rates(ordinary=1, transcendental=4, convert=1, multiply=4, wide=2, double=32),
    issue=1,
    salu=0.25,
    matrix_apart=False,
    lds_banks=32,
    lds_swizzled=False,
    lds_pipes=2,
    lds_port=0,
    l1=128,
    address_lanes=32,
    lds_latency=64,
    memory_latency=320,
    units=48,
    clock_mhz=2500,
    memory_gb=960,
    published={"f16": 512, "bf16": 512},
    cus_per_unit=2,
)
_RDNA4 = replace(
    _RDNA3,
    name="RX 9070 XT",
    units=32,
    clock_mhz=2970,
    memory_gb=640,
    published={"f16": 1024, "bf16": 1024},
)

MODELS: Mapping[str, IssueModel] = {
    "gfx908": _GFX908,
    "gfx90a": _GFX90A,
    "gfx942": _GFX942,
    "gfx950": _GFX950,
    "gfx1100": _RDNA3,
    "gfx1201": _RDNA4,
}


def model_of(arch: str) -> IssueModel:
    """The model of a chip. Raises UnsupportedError for one without figures: nothing is borrowed from a relative."""
    if arch not in MODELS:
        raise UnsupportedError(
            f"there are no figures for {arch} in the cost model",
            hint=f"there are some for {', '.join(MODELS)}",
        )
    return MODELS[arch]
