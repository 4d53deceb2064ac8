"""The committed workflows have no finding of zizmor."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.support.families import PROJECT


@pytest.mark.skipif(shutil.which("zizmor") is None, reason="needs zizmor")
def test_the_committed_workflows_have_no_finding() -> None:
    command = ["zizmor", "--offline", "--no-progress", "--color=never", ".github/workflows"]
    assert subprocess.run(command, cwd=PROJECT, capture_output=True, check=False).returncode == 0
