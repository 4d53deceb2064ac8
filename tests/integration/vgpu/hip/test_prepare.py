"""The script beside the library that leads to Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aotforge.compile.model import KernelImage
from tests.integration.release.real import CACHE
from vgpu.hip.build_hip import VirtualHip, environment, exports, script

pytestmark = pytest.mark.compiler

_ROOT = Path(__file__).parents[4]


def test_folders_from_the_environment_count_from_the_programs_own(
    virtual: VirtualHip, add: KernelImage, texts: Path
) -> None:
    here = texts.parent
    done = subprocess.run(
        [virtual.folder / "prepare", "prepare", "gfx908", "plain"],
        input=add.binary,
        cwd=here,
        env=os.environ
        | {
            "AOTFORGE_ASM": texts.name,
            "AOTFORGE_CACHE": os.path.relpath(CACHE, here),
            "PYTHONHOME": "/nothing",
        },
        capture_output=True,
        check=True,
    )
    answer = done.stdout.decode().splitlines()
    assert answer[0] == "ok"
    assert len(answer) == 4 and all(Path(path).is_absolute() and Path(path).exists() for path in answer[1:])


def test_a_checkout_may_have_any_name(tmp_path: Path) -> None:
    root = tmp_path / """it's "a":b `touch one` $(touch two) $HOME"""
    (tmp_path / "prepare").write_text(script(sys.executable, root))
    command = ["sh", str(tmp_path / "prepare"), "unknown"]
    gone = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert gone.returncode == 3 and str(root) in gone.stderr and "Next step" in gone.stderr
    root.mkdir()
    for name in ("aotforge", "vgpu", "ttcpu"):
        (root / name).symlink_to(_ROOT / name)
    there = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert there.returncode == 2 and "explain LINES FAULT" in there.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([root.name, "prepare"])


def test_a_shell_reads_the_lines_back(virtual: VirtualHip, tmp_path: Path) -> None:
    variables = environment(virtual, devices=["gfx908"], texts=[tmp_path], cache=tmp_path / "it's $HOME")
    script = exports(variables) + '\nprintf "%s\\n" "$AOTFORGE_CACHE" "$LD_LIBRARY_PATH"'
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=True, env={"LD_LIBRARY_PATH": "/old"}
    )
    assert done.stdout.splitlines() == [str(tmp_path / "it's $HOME"), f"{virtual.folder}:/old"]
