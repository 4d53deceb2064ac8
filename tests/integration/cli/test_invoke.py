"""`invoke TASK` is `./dev TASK` with invoke's own help."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from aotforge.cli.command import ROOT


def invoke(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "invoke", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )


def dev(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "tasks.py", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_invoke_lists_every_task_that_it_can_parse() -> None:
    ours = set(json.loads(dev("--list", "--json").stdout))
    found: set[str] = set()

    def walk(collection: dict[str, object], prefix: str) -> None:
        for task in collection["tasks"]:  # type: ignore[attr-defined]
            found.add(f"{prefix}{task['name']}")
        for group in collection["collections"]:  # type: ignore[attr-defined]
            walk(group, f"{group['name']}.")

    walk(json.loads(invoke("--list", "--list-format=json").stdout), "")
    assert "release.make" in found  # the default of its group: `invoke release`
    assert ours - found == {"release", "emulator", "python", "run", "config.show"}


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("plan", "--arch", "gfx908", "--profile", "smoke", "--json"), id="a result"),
        pytest.param(("plan",), id="a missing flag"),
        pytest.param(("build", "--arch", "gfx908", "--jobs", "many"), id="not a number"),
        pytest.param(("images.ls", "/no/such/pack"), id="a positional argument"),
        pytest.param(("images.ls", "--help"), id="help where an argument is missing"),
    ],
)
def test_results_errors_and_exit_codes_are_the_same(words: tuple[str, ...]) -> None:
    by_invoke, ours = invoke(*words), dev(*words)
    assert (by_invoke.stdout, by_invoke.stderr) == (ours.stdout, ours.stderr)
    assert by_invoke.returncode == ours.returncode
