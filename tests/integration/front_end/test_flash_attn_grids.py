"""flash-attn's own tests on aotforge_flash: random calls of their grids are right, or refused by name."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from aotforge.targets.backends import unexecutable
from tests.support.families import PROJECT
from tests.support.front_end import write_library

CHECKOUT = os.environ.get("AOTFORGE_FLASH_ATTN", "")
PYTHON = os.environ.get("AOTFORGE_TRANSFORMERS", "")
pytestmark = [
    pytest.mark.compiler,
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (CHECKOUT and PYTHON),
        reason="needs AOTFORGE_FLASH_ATTN, a checkout of flash-attn, and AOTFORGE_TRANSFORMERS, a Python with"
        " PyTorch and requirements/clients.txt",
    ),
]


def test_random_calls_of_the_grids(tmp_path: Path) -> None:
    if reason := unexecutable("cpu-x86-64-v3"):
        pytest.skip(reason)
    library = write_library(tmp_path, general=True)
    done = subprocess.run(
        (PYTHON, "-m", "tests.support.flash_attn_grids", library, CHECKOUT, "cpu", "10"),
        cwd=PROJECT, env=os.environ | {"AOTRITON_LOG": "off"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    served = re.findall(r"^(test_\w+): .*?(\d+) served", done.stdout, re.MULTILINE)
    assert len(served) > 10 and sum(int(count) for _, count in served) > 40, done.stdout
