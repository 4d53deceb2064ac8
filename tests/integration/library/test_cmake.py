"""CMake commands as a shell script, with any characters in a folder's name."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from aotforge.library.cmake_build import shell_script

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


@settings(max_examples=25)
@given(words=st.lists(NAMES, min_size=1, max_size=4), folder=NAMES)
def test_a_shell_receives_every_word_unchanged(words: list[str], folder: str) -> None:
    command = ["printf", "%s\\0", *(f"{{work}}/{word}" for word in words), *words]
    work = f"/tmp/{folder}"
    done = subprocess.run(
        ["/bin/sh", "-c", shell_script([command])], env={"WORK": work}, capture_output=True, check=True
    )
    wanted = [f"{work}/{word}" for word in words] + [word.replace("{work}", work) for word in words]
    assert done.stdout.decode().split("\0")[:-1] == wanted


def test_a_script_ends_with_its_first_failure(tmp_path: Path) -> None:
    script = shell_script([["true"], ["sh", "-c", "exit 4"], ["touch", str(tmp_path / "after")]])
    assert subprocess.run(["/bin/sh", "-c", script], check=False).returncode == 4
    assert not (tmp_path / "after").exists()
