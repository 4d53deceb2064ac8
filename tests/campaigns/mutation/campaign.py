"""Runs of mutants: a copy of the tree, the tests of a module, the verdict; and the table of the results in docs/mutation.md."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.e2e.checkouts import copy_checkout

ROOT = Path(__file__).resolve().parents[3]
SEED = 12
TIMEOUT = 300
"""Seconds for a module's tests on a mutant; one that takes longer is killed by that."""
_PLACE = Path(__file__).parent
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Module:
    """A mutated file with the tests that must notice, and the rate that was recorded: killed of those not equivalent."""

    name: str
    tests: Sequence[str]
    recorded: float


@dataclass(frozen=True, kw_only=True)
class Result:
    """Mutants of a module: how many there are, were run, were noticed; names of those unnoticed and not equivalent."""

    module: str
    mutants: int
    run: int
    killed: int
    equivalent: int
    survivors: Sequence[str]

    @property
    def rate(self) -> float:
        """Share of the mutants that can be noticed."""
        real = self.run - self.equivalent
        return self.killed / real if real else 1.0


def modules(language: str) -> list[Module]:
    """Modules of `modules.toml` in one language."""
    table = tomllib.loads((_PLACE / "modules.toml").read_text())[language]
    return [
        Module(name=name, tests=row["tests"], recorded=row.get("recorded", 0.0))
        for name, row in table.items()
    ]


def equivalents() -> dict[str, str]:
    """Name of a mutant to the reason why no test can notice it."""
    return dict(json.loads((_PLACE / "equivalent.json").read_text()))


def copy_tree(language: str) -> Path:
    """The project's files, as they are here, in a folder of the cache that is always the same: builds depend on it."""
    folder = Path(os.environ.get("AOTFORGE_HOME") or ROOT / ".aotforge") / "cache" / f"mutants-{language}"
    shutil.rmtree(folder, ignore_errors=True)
    return copy_checkout(folder)


def sample(mutants: Sequence[T], most: int) -> list[T]:
    """All of them, or `most` chosen by the fixed seed."""
    return list(mutants) if len(mutants) <= most else random.Random(SEED).sample(list(mutants), most)


def tests_fail(
    tree: Path, tests: Sequence[str], environment: dict[str, str], *, timeout: float = TIMEOUT
) -> bool:
    """The tests notice something: one fails, or they take too long."""
    home = os.environ.get("AOTFORGE_HOME") or str(ROOT / ".aotforge")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", *tests]
    process = subprocess.Popen(
        command, cwd=tree, env=os.environ | {"AOTFORGE_HOME": home, "PYTHONDONTWRITEBYTECODE": "1"} | environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        status = process.wait(timeout)
    except subprocess.TimeoutExpired:
        return True
    finally:
        # processes of the tests may outlive a crash of pytest
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert status in (0, 1, 2, 3) or status < 0, f"pytest ended with {status} on {tests}"
    return status != 0


def table(results: Sequence[Result]) -> str:
    """Rows for docs/mutation.md."""
    head = "| module | mutants | run | killed | equivalent | rate |\n|---|---|---|---|---|---|\n"
    rows = [
        f"| `{one.module}` | {one.mutants} | {one.run} | {one.killed} | {one.equivalent} | {one.rate:.0%} |"
        for one in results
    ]
    return head + "\n".join(rows) + "\n"
