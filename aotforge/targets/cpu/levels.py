"""Levels of x86-64 that kernels are compiled for, and the one of this processor."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from aotforge.errors import UnsupportedError


@dataclass(frozen=True, kw_only=True)
class Level:
    """A level of x86-64: `cpu` is LLVM's name, `lanes` float32 in a vector register, `flags` what /proc/cpuinfo must show."""

    name: str
    cpu: str
    lanes: int
    flags: frozenset[str]


LEVELS = (
    Level(
        name="x86-64-v4", cpu="x86-64-v4", lanes=16,
        flags=frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma", "f16c"}),
    ),
    Level(name="x86-64-v3", cpu="x86-64-v3", lanes=8, flags=frozenset({"avx2", "fma", "f16c", "bmi2"})),
)  # fmt: skip
"""Highest first. Below v3 there is no conversion of float16 and no fused multiply-add in hardware."""


def host_level() -> str:
    """The highest level that this processor has, or AOTFORGE_CPU_LEVEL. Raises UnsupportedError below x86-64-v3."""
    if chosen := os.environ.get("AOTFORGE_CPU_LEVEL"):
        return chosen
    flags = _cpu_flags()
    for level in LEVELS:
        if level.flags <= flags:
            return level.name
    missing = ", ".join(sorted(LEVELS[-1].flags - flags))
    raise UnsupportedError(
        "this processor is below x86-64-v3, the lowest level that kernels are compiled for",
        cause=f"it lacks {missing}",
        hint="use TRITON_INTERPRET=1",
    )


def _cpu_flags() -> frozenset[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()
