"""How many compile workers this machine runs, and the limits of each."""

from __future__ import annotations

from dataclasses import dataclass

from aotforge.base.machine import GIB, available_cpus, available_memory


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Per worker: seconds of wall time per job, bytes of resident memory, seconds to start."""

    job_seconds: float = 600.0
    memory_bytes: int = 3 * GIB // 2
    start_seconds: float = 120.0


def worker_count(jobs: int, limits: Limits, *, wanted: int | None = None) -> int:
    """Workers for so many jobs: `wanted` or the CPUs, bounded by free memory and by the jobs; at least 1."""
    by_memory = available_memory() // limits.memory_bytes
    return max(1, min(wanted or available_cpus(), by_memory, jobs))
