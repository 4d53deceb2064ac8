"""Images do not depend on the host's C library, its settings, or Python's patch level.

The first two jobs are those of the core profile whose bytes differ between glibc's malloc and the pinned
allocator (Triton 3.9.0).
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.compile.pool import worker_environment
from aotforge.plan.model import Plan
from tests.integration.compile.builds import compiled
from tests.support.families import plan_project

ROOT = Path(__file__).parents[3]
_REST = "dropout=false,mask=window"
SENSITIVE = (
    f"flash.bwd_dk_dv:gfx908:dtype=fp16,{_REST},width=32:0",
    f"flash.bwd_dk_dv:gfx908:dtype=fp16,{_REST},width=128:0",
    f"flash.bwd_dk_dv:gfx908:dtype=bf16,{_REST},width=64:0",
    f"flash.bwd_dq:gfx908:dtype=fp16,{_REST},width=32:0",
)
DISTURBANCES = {
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.mmap_threshold=4096:glibc.malloc.arena_max=1",
    "MALLOC_PERTURB_": "85",
    "PYTHONMALLOC": "malloc",  # Python's small objects too come from malloc, a million of them
    "LD_BIND_NOW": "1",
}

pytestmark = pytest.mark.compiler


def other_python() -> str:
    """Another build of the same Python minor version, else the one that runs."""
    wanted = f"{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (Path(f"/usr/bin/python{wanted}"), Path(f"/usr/local/bin/python{wanted}")):
        if candidate.exists() and not candidate.samefile(sys.executable):
            done = subprocess.run([candidate, "-c", "import ctypes"], capture_output=True, check=False)
            if done.returncode == 0:
                return str(candidate)
    return sys.executable


def digests(plan: Plan, folder: Path) -> dict[str, str]:
    images = compiled(plan, folder)
    return {job.label: images.digest(job.key) for job in plan.jobs}


def test_libc_settings_and_another_python_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_project(ROOT, archs=["gfx908"], profile="core")
    found = {job.label: job for job in plan.jobs}
    plan = replace(plan, jobs=tuple(found[label] for label in SENSITIVE))
    calm = digests(plan, tmp_path / "calm")

    def disturbed(
        pinned: tuple[tuple[str, str], ...],
        temporary: Path,
        *,
        preload: str = "",
        packages: Path | None = None,
    ) -> dict[str, str]:
        return worker_environment(pinned, temporary, preload=preload, packages=packages) | DISTURBANCES

    monkeypatch.setattr("aotforge.compile.pool.worker_environment", disturbed)
    monkeypatch.setattr("aotforge.base.workers.sys.executable", other_python())
    monkeypatch.setattr("aotforge.compile.scheduler.cost", lambda job: SENSITIVE.index(job.label))
    assert digests(plan, tmp_path / "disturbed in a place with spaces: and a colon") == calm
