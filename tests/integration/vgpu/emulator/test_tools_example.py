"""The example of docs/virtual-gpu-tools.md, pasted."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.families import PROJECT

pytestmark = pytest.mark.compiler


def test_the_example_of_the_documentation_works_as_it_is(tmp_path: Path) -> None:
    text = (PROJECT / "docs" / "virtual-gpu-tools.md").read_text()
    script = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    commands = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)[0]
    (tmp_path / "example.py").write_text(script)
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_DISABLE_LINE_INFO"}
    (tmp_path / "dev").symlink_to(PROJECT / "dev")
    done = subprocess.run(
        ["/bin/sh", "-ec", commands],
        cwd=tmp_path,
        env={**environment, "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "dynamic LDS: 16" in done.stdout
    assert "breakpoint 1, hit 1: workgroup (1, 0, 0), wave 0" in done.stdout
    assert "example.py:13" in done.stdout
    assert done.stdout.count("step: workgroup (0, 0, 0), wave 0") == 1
    assert "error:" not in done.stdout + done.stderr
    assert re.search(r"\[ *65408\. +184342\. *\]", done.stdout), done.stdout[-200:]
