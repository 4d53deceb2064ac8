"""The container tasks as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def task(cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tasks.py"), *arguments]
    environment = dict(os.environ, AOTFORGE_CACHE=str(cache), PYTHONPATH=str(ROOT))
    return subprocess.run(command, cwd=cache, env=environment, capture_output=True, text=True, check=False)


def test_list_of_an_empty_cache(tmp_path: Path) -> None:
    done = task(tmp_path, "containers.list", "--json")
    assert done.returncode == 0, done.stderr
    found = {entry["name"]: entry for entry in json.loads(done.stdout)}
    assert set(found) >= {"rocm-kernels", "rocm-runtime", "windows-noimage"}
    assert not any(entry["made"] for entry in found.values())
    triton = next(one for one in found["rocm-kernels"]["wheels"] if one["name"] == "triton")
    assert f"triton=={triton['version']} " in (ROOT / "requirements" / "build.txt").read_text()
    people = task(tmp_path, "containers.list").stdout.splitlines()
    assert any(line.startswith("rocm-runtime") and "not built" in line for line in people)
    assert (
        "0.0 MB in 0 files and folders would be removed"
        in task(tmp_path, "containers.prune", "--dry-run").stdout
    )


def test_errors_have_their_exit_codes(tmp_path: Path) -> None:
    unknown = task(tmp_path, "containers.build", "--name", "rocm-runtim", "--json")
    assert unknown.returncode == 2
    assert "rocm-runtime" in json.loads(unknown.stdout)["error"]["cause"]
    (tmp_path / "file").write_text("")
    blocked = task(tmp_path, "containers.build", "--name", "rocm-runtime", "--cache", str(tmp_path / "file"))
    assert blocked.returncode == 3
    assert "Next step:" in blocked.stderr
