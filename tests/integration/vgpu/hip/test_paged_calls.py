"""Random calls of attention over pages by the library on virtual GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.device.paged_calls import WIDTHS
from tests.integration.release.real import CACHE
from tests.support.families import PROJECT
from tests.support.front_end import write_library
from vgpu.hip.build_hip import VirtualHip, environment

pytestmark = pytest.mark.compiler
ALL = ("fp16", "bf16", "i8", "fp8e4nv", "fp8e5")


def last_line(virtual: VirtualHip, arch: str, library: Path, *words: str) -> str:
    """Of the calls' output."""
    settings = environment(virtual, devices=[arch], texts=[library.parent / "texts"], cache=CACHE)
    done = subprocess.run(
        [sys.executable, "-m", "tests.device.paged_calls", str(library), arch, *words],
        cwd=PROJECT, env=os.environ | settings, capture_output=True, text=True, timeout=3000, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout.splitlines()[-1]


def test_a_few_calls_on_a_virtual_mi100(virtual: VirtualHip, tmp_path: Path) -> None:
    library = write_library(
        tmp_path, arch="gfx908", caches=("fp16",), flash__dtype=(), flash_paged__width=(64,)
    )
    assert ": 8 calls, 0 wrong" in last_line(virtual, "gfx908", library, "8", "--few")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx906", "gfx908", "gfx1100"])
def test_500_calls(virtual: VirtualHip, tmp_path: Path, arch: str) -> None:
    library = write_library(
        tmp_path,
        arch=arch,
        caches=ALL,
        flash__dtype=(),
        flash_paged__dtype=("fp16", "bf16"),
        flash_paged__width=WIDTHS,
    )
    assert ": 500 calls, 0 wrong" in last_line(virtual, arch, library, "500")
