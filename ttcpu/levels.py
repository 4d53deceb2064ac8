"""Levels of x86-64 that kernels are compiled for, and the one of this processor."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .errors import UnsupportedError


@dataclass(frozen=True, kw_only=True)
class Level:
    """A level of x86-64: `cpu` and `features` of LLVM, `lanes` of float32, `flags` of /proc/cpuinfo.

    `pairs_bf16`: the processor multiplies pairs of bfloat16 and adds them to float32.
    """

    name: str
    cpu: str
    lanes: int
    flags: frozenset[str]
    features: str = ""
    pairs_bf16: bool = False


_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"})
_V3 = _V2 | {"abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
LEVELS = (
    Level(
        name="x86-64-v4-bf16", cpu="x86-64-v4", features="+avx512bf16", lanes=16, flags=_V4 | {"avx512_bf16"},
            pairs_bf16=True
    ),
    Level(name="x86-64-v4", cpu="x86-64-v4", lanes=16, flags=_V4),
    Level(name="x86-64-v3", cpu="x86-64-v3", lanes=8, flags=_V3),
    Level(name="x86-64-v2", cpu="x86-64-v2", lanes=4, flags=_V2),
)  # fmt: skip
"""Highest first. x86-64-v2 converts float16 and fuses products and sums by functions, a lane at a time."""


def level_named(name: str) -> Level:
    """Raises UnsupportedError for a name that is none."""
    for level in LEVELS:
        if level.name == name:
            return level
    known = ", ".join(level.name for level in LEVELS)
    raise UnsupportedError(
        f"{name} is not a level of x86-64 that kernels are compiled for; those are {known}"
    )


def host_levels() -> tuple[str, ...]:
    """The levels that this processor has, highest first."""
    flags = _cpu_flags()
    return tuple(level.name for level in LEVELS if level.flags <= flags)


def missing_flags(name: str) -> str:
    """What this processor lacks of a level, joined by commas, or ''. Raises UnsupportedError."""
    return ", ".join(sorted(level_named(name).flags - _cpu_flags()))


def host_level() -> str:
    """This processor's highest level, or AOTFORGE_CPU_LEVEL. Raises UnsupportedError if it lacks that."""
    has = host_levels()
    if chosen := os.environ.get("AOTFORGE_CPU_LEVEL"):
        missing = missing_flags(chosen)
        if missing:
            raise UnsupportedError(
                f"this processor does not have the level {chosen}",
                cause=f"it lacks {missing}",
                hint="unset AOTFORGE_CPU_LEVEL",
            )
        return chosen
    if not has:
        raise UnsupportedError(
            f"this processor is below {LEVELS[-1].name}, the lowest level that kernels are compiled for",
            cause=f"it lacks {missing_flags(LEVELS[-1].name)}",
            hint="use TRITON_INTERPRET=1",
        )
    return has[0]


def _cpu_flags() -> frozenset[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()
