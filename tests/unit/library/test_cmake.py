"""Commands as words and as a script: whatever a folder is called, the program gets the words that were meant."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from aotforge.library.cmake_build import cmake_commands, shell_script

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


@settings(max_examples=25)
@given(words=st.lists(NAMES, min_size=1, max_size=4), folder=NAMES)
def test_a_shell_gets_every_word_whole(words: list[str], folder: str) -> None:
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


def test_settings_are_sorted_and_installing_is_optional() -> None:
    configure, build = cmake_commands(
        cmake="cmake", source="s", objects="o", settings={"B": "2", "A": "1"}, jobs=3, install=None
    )
    assert configure == ["cmake", "-S", "s", "-B", "o", "-G", "Ninja", "-DA=1", "-DB=2"]
    assert build == ["cmake", "--build", "o", "--parallel", "3"]
    install = cmake_commands(cmake="cmake", source="s", objects="o", settings={}, jobs=None, install="p")[2]
    assert install == ["cmake", "--install", "o", "--prefix", "p"]
