"""Runs of mutants: a copy of the tree, the tests of a module, the verdict; recorded results and their table in docs/mutation.md."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from tests.e2e.checkouts import copy_checkout

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "mutation.md"
SEED = 12
SAMPLES: Mapping[str, int] = {"cpp": 10, "python": 12, "isa": 2}
"""Mutants of a module that are run; of the instruction table: mutants of each instruction."""
AIMS: Mapping[str, float] = {"cpp": 0.85, "python": 0.9, "isa": 0.9}
TIMEOUT = 300
"""Seconds for a module's tests on a mutant; one that takes longer is killed by that."""
_PLACE = Path(__file__).parent
_BEGIN, _END = "<!-- results -->\n", "<!-- end of results -->\n"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Module:
    """A mutated file with the tests that must notice."""

    name: str
    tests: Sequence[str]


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
    return [Module(name=name, tests=row["tests"]) for name, row in table.items()]


def equivalents() -> dict[str, str]:
    """Name of a mutant to the reason why no test can notice it."""
    return dict(json.loads((_PLACE / "equivalent.json").read_text()))


def copy_tree(language: str) -> Path:
    """The project's files, as they are here, in a folder of the cache that is always the same: builds depend on it."""
    folder = Path(os.environ.get("AOTFORGE_HOME") or ROOT / ".aotforge") / "cache" / f"mutants-{language}"
    shutil.rmtree(folder, ignore_errors=True)
    return copy_checkout(folder)


def sample(mutants: Sequence[T], most: int, name: Callable[[T], str], seed: int = SEED) -> list[T]:
    """At most `most` of them, chosen by seed and name: a changed line of a module leaves the others of the sample as they are."""

    def order(mutant: T) -> str:
        return hashlib.sha256(f"{seed}/{name(mutant)}".encode()).hexdigest()

    chosen = {name(mutant) for mutant in sorted(mutants, key=order)[:most]}
    return [mutant for mutant in mutants if name(mutant) in chosen]


def measured(
    module: str, mutants: Sequence[T], name: Callable[[T], str], survives: Callable[[T], bool],
    *, most: int, seed: int,
) -> Result:  # fmt: skip
    """Run a sample of one module's mutants and print the survivors as they are found."""
    known = equivalents()
    chosen = sample(mutants, most, name, seed)
    real = [mutant for mutant in chosen if name(mutant) not in known]
    survivors = []
    for mutant in real:
        if survives(mutant):
            survivors.append(name(mutant))
            print(f"survives: {survivors[-1]}", flush=True)  # noqa: T201 - progress of hours
    return Result(
        module=module, mutants=len(mutants), run=len(chosen), killed=len(real) - len(survivors),
        equivalent=len(chosen) - len(real), survivors=survivors,
    )  # fmt: skip


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


def recorded() -> dict[str, Result]:
    """Results of the last recorded run of each module."""
    rows = json.loads((_PLACE / "results.json").read_text())
    return {name: Result(module=name, **row) for name, row in rows.items()}


def worse(results: Iterable[Result]) -> dict[str, tuple[float, ...]]:
    """Modules whose tests notice less than they did in the recorded run: the rates now and then."""
    before = recorded()
    return {
        now.module: (now.rate, before[now.module].rate)
        for now in results
        if now.module in before and now.rate < before[now.module].rate
    }


def write(results: Iterable[Result]) -> None:
    """Record results, and generate the table of docs/mutation.md."""
    rows = {**recorded(), **{one.module: one for one in results}}
    order = [*(module.name for language in ("cpp", "python") for module in modules(language)), "isa"]
    kept = {
        name: {k: v for k, v in asdict(rows[name]).items() if k != "module"} for name in order if name in rows
    }
    (_PLACE / "results.json").write_text(json.dumps(kept, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text()))


def page(text: str) -> str:
    """docs/mutation.md with the table of the recorded results."""
    before, _, rest = text.partition(_BEGIN)
    return before + _BEGIN + "\n" + table(recorded().values()) + "\n" + _END + rest.partition(_END)[2]


def table(results: Iterable[Result]) -> str:
    """Rows for docs/mutation.md."""
    head = "| module | mutants | run | killed | equivalent | rate |\n|---|---|---|---|---|---|\n"
    rows = [
        f"| {_shown(one.module)} | {one.mutants} | {one.run} | {one.killed} | {one.equivalent} | {one.rate:.0%} |"
        for one in results
    ]
    return head + "\n".join(rows) + "\n"


def _shown(module: str) -> str:
    if module == "isa":
        return "instruction table of the emulator"
    return f"`{module}`" if "/" in module else f"`runtime/src/{module}`"
