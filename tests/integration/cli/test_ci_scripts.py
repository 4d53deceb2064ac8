"""The scripts of CI, with stand-ins for what needs root or a network."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]


def stand_in(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


def test_no_command_line_has_passwords(tmp_path: Path) -> None:
    """Every user of a machine can read command lines, and bubblewrap's is there until the end."""
    stand_in(tmp_path, "id", "echo 0")
    stand_in(tmp_path, "debootstrap", "mkdir -p ${@: -1}/etc")
    stand_in(tmp_path, "git", "mkdir -p ${@: -1}")
    stand_in(
        tmp_path, "bwrap", f"printf '%s\\n' \"$@\" >{tmp_path}/words; tr '\\0' '\\n' <&3 >{tmp_path}/more"
    )
    secrets = {"PIP_INDEX_URL": "https://ci:hidden-1@host/simple", "https_proxy": "http://me:hidden-2@host"}
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    subprocess.run([ROOT / ".ci/bare", "true"], env=environment | secrets, check=True)
    words = (tmp_path / "words").read_text()
    assert words.endswith("--args\n3\n--chdir\n/home/user/aotforge\ntrue\n")
    assert "hidden" not in words
    given = (tmp_path / "more").read_text().splitlines()
    assert given[0] == "--clearenv"
    for name, value in secrets.items():
        assert given[given.index(name) - 1 :][:3] == ["--setenv", name, value]
