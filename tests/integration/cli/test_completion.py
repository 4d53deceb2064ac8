"""Completion scripts, executed by their shells where these are installed; bash always is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import tasks  # noqa: F401 - registers every task
from aotforge.cli.command import TASKS
from aotforge.cli.completion import SHELLS, spellings
from aotforge.cli.program import run
from aotforge.errors import UnknownNameError


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    run(["completion", request.param])
    path = tmp_path / "script"
    path.write_text(capsys.readouterr().out)
    return path


def completed(script: Path, line: str) -> set[str]:
    """What bash offers at the end of a line."""
    words = line.split(" ")
    array = " ".join(f"'{word}'" for word in words)
    query = f"COMP_WORDS=({array}); COMP_CWORD={len(words) - 1}; _dev_complete; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(
        ["bash", "--norc", "-c", f"source {script}; {query}"], capture_output=True, text=True, check=True
    )
    assert not done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash(script: Path) -> None:
    assert completed(script, "./dev ") == {*TASKS, "--list", "--version", "--help"}
    assert completed(script, "./dev release.d") == {"release.diff", "release.dropin"}
    assert completed(script, "./dev build --cache-") == {
        *("--cache-from", "--cache-to", "--cache-root", "--cache-keys", "--cache-limit")
    }
    assert completed(script, "./dev build --no-v") == {"--no-verify"}
    assert {"gfx908", "gfx90a"} <= completed(script, "./dev build --arch gfx90")
    assert completed(script, "./dev build --arch gfx908 --profile s") == {"smoke"}
    assert completed(script, "./dev completion ") >= set(SHELLS)
    assert completed(script, "./dev build --output rel") == set()  # files: `complete -o default`
    assert "complete -o default -F _dev_complete dev" in script.read_text()


@pytest.mark.parametrize("script", SHELLS, indirect=True)
def test_every_flag_of_every_task_is_there(script: Path) -> None:
    text = script.read_text()
    for name, task in TASKS.items():
        assert name in text
        for spelling, _ in spellings(task):
            word = spelling.lstrip("-")
            assert re.search(rf"(--?|-[ls] ){re.escape(word)}\b", text), (name, spelling)


@pytest.mark.parametrize("script", ["zsh"], indirect=True)
def test_zsh_reads_its_script(script: Path) -> None:
    if shutil.which("zsh"):
        setup = "autoload -Uz compinit; compinit -u -D"
        command = ["zsh", "-f", "-c", f"{setup}; source {script}; print $_comps[dev]"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == ("_dev_complete\n", "")


@pytest.mark.parametrize("script", ["fish"], indirect=True)
def test_fish_offers_the_same(script: Path, tmp_path: Path) -> None:
    if shutil.which("fish"):
        lines = ("dev release.d", "dev build --cache-t", "dev completion ", "dev build --arch gfx90")
        commands = "; ".join(f'complete -C "{line}"' for line in lines)
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"source {script}; {commands}"],
            capture_output=True, text=True, check=True, cwd=tmp_path, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        found = {line.split("\t")[0] for line in done.stdout.splitlines()}
        assert {"release.diff", "release.dropin", "--cache-to", *SHELLS, "gfx908", "gfx90a"} <= found


def test_another_shell_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown shell tcsh"):
        run(["completion", "tcsh"])
