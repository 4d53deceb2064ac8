"""A build with nothing to do, and the list of tasks, do not import what takes long."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.families import PROJECT

HEAVY = (
    *("numpy", "triton", "rich", "docker", "boto3", "tuf", "aotforge.virtual_gpu.emulator.program"),
    *("auditwheel", "elftools", "urllib.request", "asyncio", "aotforge.pipeline.shards.merge"),
)


@pytest.mark.parametrize("module", ["tasks", "aotforge.pipeline.build_command"])
def test_no_heavy_import(module: str) -> None:
    program = f"import sys, {module}; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
