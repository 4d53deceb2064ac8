"""`pytest --require-all`: a skip fails unless the committed list allows its reason."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.families import PROJECT

TESTS = """
import pytest

def test_tool():
    pytest.skip("no such tool")

@pytest.mark.skipif(True, reason="this processor has no fused multiply-add")
def test_root():
    pass

@pytest.mark.xfail(reason="known")
def test_known():
    assert False

def test_passes():
    pass
"""


def _run(folder: Path, *flags: str) -> str:
    for name in ("conftest.py", "allowed_skips.txt"):
        shutil.copy(PROJECT / "tests" / name, folder / name)
    (folder / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *flags, str(folder)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def test_without_it_skips_are_skips(tmp_path: Path) -> None:
    assert "1 passed, 2 skipped, 1 xfailed" in _run(tmp_path)


def test_a_skip_that_is_not_listed_fails(tmp_path: Path) -> None:
    output = _run(tmp_path, "--require-all")
    assert "1 failed, 1 passed, 1 skipped, 1 xfailed" in output
    assert "no such tool" in output and "no pattern of allowed_skips.txt allows this skip" in output
