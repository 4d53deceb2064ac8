"""The number of workers and their environment, on simulated machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aotforge.base import machine
from aotforge.base.machine import available_cpus, available_memory, resident_bytes
from aotforge.compile import pool
from aotforge.compile.pool import WorkerLimits, worker_count, worker_environment

GIB = 1 << 30


@pytest.mark.parametrize(
    ("cpus", "free", "jobs", "wanted", "count"),
    [
        (8, 64 * GIB, 100, None, 8),
        (8, 4 * GIB, 100, None, 2),
        (8, GIB // 2, 100, None, 1),
        (8, 64 * GIB, 3, None, 3),
        (8, 64 * GIB, 100, 2, 2),
        (2, 64 * GIB, 100, 6, 6),
        (8, 4 * GIB, 100, 6, 2),
    ],
)
def test_cpus_memory_and_jobs_bound_the_workers(
    monkeypatch: pytest.MonkeyPatch, cpus: int, free: int, jobs: int, wanted: int | None, count: int
) -> None:
    monkeypatch.setattr(pool, "available_cpus", lambda: cpus)
    monkeypatch.setattr(pool, "available_memory", lambda: free)
    assert worker_count(jobs, WorkerLimits(), wanted=wanted) == count


def test_cgroups_of_both_versions_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cpus, memory = available_cpus(), available_memory()
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    monkeypatch.setattr(machine, "_cgroup_folders", lambda: [tmp_path])
    assert available_cpus() == 16
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert available_cpus() == 16
    (tmp_path / "cpu.max").write_text("250000 100000\n")
    assert available_cpus() == 2
    (tmp_path / "cpu.cfs_quota_us").write_text("100000\n")
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    assert available_cpus() == 1
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("0\n")
    assert available_memory() > 0
    (tmp_path / "memory.max").write_text(str(3 * 1024))
    (tmp_path / "memory.current").write_text("1024\n")
    assert available_memory() == 2048
    assert cpus >= 1
    assert memory > 0


def test_resident_memory_is_measured() -> None:
    assert resident_bytes(os.getpid()) > 1 << 20
    assert resident_bytes(2**22 - 1) == 0


def test_workers_get_a_clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "TRITON_DEBUG",
        "AMDGCN_USE_BUFFER_OPS",
        "LLVM_IR_ENABLE_DUMP",
        "DISABLE_LLVM_OPT",
        "HOME",
        "PYTHONSTARTUP",
    ):
        monkeypatch.setenv(name, "surprise")
    environment = worker_environment((("TRITON_X", "1"),), tmp_path)
    assert environment["TRITON_X"] == "1"
    assert environment["TMPDIR"] == str(tmp_path)
    assert "surprise" not in environment.values()
