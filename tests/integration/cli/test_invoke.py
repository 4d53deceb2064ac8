"""`invoke TASK` from a checkout is `./dev TASK`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from aotforge.cli.settings import ROOT


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)


def test_invoke_lists_every_task() -> None:
    listed = [
        run(*words, "--list", "--list-format=json").stdout for words in (["tasks.py"], ["-m", "invoke"])
    ]
    ours, theirs = map(json.loads, listed)
    assert ours["tasks"] == theirs["tasks"] and ours["collections"] == theirs["collections"]
    assert "release" in {group["name"] for group in ours["collections"]}


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("plan", "--arch", "gfx908", "--profile", "smoke", "--json"), id="a result"),
        pytest.param(("build", "--arch", "gfx9o8"), id="an unknown arch"),
        pytest.param(("release", "--version", "0.1b", "--unsigned", "--json"), id="the default of a group"),
        pytest.param(("images", "/no/such/pack"), id="a positional argument"),
    ],
)
def test_results_errors_and_exit_codes_are_the_same(words: tuple[str, ...]) -> None:
    by_invoke, ours = run("-m", "invoke", *words), run("tasks.py", *words)
    assert (by_invoke.stdout, by_invoke.stderr) == (ours.stdout, ours.stderr)
    assert by_invoke.returncode == ours.returncode
