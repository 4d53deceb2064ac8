"""Runs of mutants: a copy of the tree, the tests of a module, the verdict; recorded results."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from tests.campaigns.mutation.preloaded import fork_pytest, preload
from tests.e2e.checkouts import copy_checkout

ROOT = Path(__file__).resolve().parents[3]
SEED = 12
SAMPLES: Mapping[str, int] = {"cpp": 10, "python": 12, "isa": 2}
"""Mutants of a module that are run; of the instruction table: mutants of each instruction."""
AIMS: Mapping[str, float] = {"cpp": 0.85, "python": 0.9, "isa": 0.9}
SLOWER = 10
"""A mutant is killed by time when its tests use this many times the processor time of the unchanged module's tests, and 30 s more."""
IDLE = 120
"""Seconds without any use of the processor and without a process that could use it: the tests hang."""
_PLACE = Path(__file__).parent
T = TypeVar("T")
Killer = Callable[[Mapping[str, str]], str]
"""From the environment that a mutant needs to the test that notices it, or ""."""


@dataclass(frozen=True, kw_only=True)
class Module:
    """A mutated file with the tests that must notice."""

    name: str
    tests: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Result:
    """Mutants of a module: how many there are, were run, were noticed; names of those unnoticed and not equivalent; `sources`: the digest
    of the module's file at the time of the run."""

    module: str
    mutants: int
    run: int
    killed: int
    equivalent: int
    survivors: Sequence[str]
    sources: str = ""

    @property
    def rate(self) -> float:
        """Share of the mutants that can be noticed."""
        real = self.run - self.equivalent
        return self.killed / real if real else 1.0


def modules(language: str) -> list[Module]:
    """Modules of `modules.toml` in one language."""
    table = tomllib.loads((_PLACE / "modules.toml").read_text())[language]
    return [Module(name=name, tests=row["tests"]) for name, row in table.items()]


def sources_of(name: str) -> str:
    """The digest of a module's file; of the instruction table: of its folder."""
    single = ROOT / name if "/" in name else ROOT / "runtime/src" / name
    paths = sorted((ROOT / "vgpu/emulator/isa").glob("*.py")) if name == "isa" else [single]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def equivalents() -> dict[str, str]:
    """Name of a mutant to the reason why no test can notice it."""
    return dict(json.loads((_PLACE / "equivalent.json").read_text()))


def copy_tree(language: str) -> Path:
    """The project's files as they are here, in the first of the cache's folders that no other campaign uses: builds depend on it."""
    cache = Path(os.environ.get("AOTFORGE_HOME") or ROOT / ".aotforge") / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        folder = cache / f"mutants-{language}-{number}"
        lock = os.open(folder.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until this process ends
        except OSError:
            os.close(lock)
            continue
        shutil.rmtree(folder, ignore_errors=True)
        return copy_checkout(folder)
    raise AssertionError


def sample(mutants: Sequence[T], most: int, name: Callable[[T], str], seed: int = SEED) -> list[T]:
    """At most `most` of them, chosen by seed and name: a changed line of a module leaves the others of the sample as they are."""

    def order(mutant: T) -> str:
        return hashlib.sha256(f"{seed}/{name(mutant)}".encode()).hexdigest()

    chosen = {name(mutant) for mutant in sorted(mutants, key=order)[:most]}
    return [mutant for mutant in mutants if name(mutant) in chosen]


def measured(
    module: str, mutants: Sequence[T], name: Callable[[T], str], killer: Callable[[T], str],
    *, most: int, seed: int,
) -> Result:  # fmt: skip
    """Run a sample of one module's mutants and print what became of each. `killer` returns what noticed the mutant, or ""."""
    known = equivalents()
    chosen = sample(mutants, most, name, seed)
    real = [mutant for mutant in chosen if name(mutant) not in known]
    survivors = []
    for mutant in real:
        by = killer(mutant)
        if not by:
            survivors.append(name(mutant))
        print(f"killed: {name(mutant)}: {by}" if by else f"survives: {name(mutant)}", flush=True)  # noqa: T201 - progress of hours
    return Result(
        module=module, mutants=len(mutants), run=len(chosen), killed=len(real) - len(survivors),
        equivalent=len(chosen) - len(real), survivors=survivors,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A run of tests: what failed ("" when nothing did), and the processor time used."""

    failure: str
    seconds: float


def run_tests(
    tree: Path, tests: Sequence[str], environment: Mapping[str, str], *, most_seconds: float = float("inf"), loaded: Path | None = None
) -> Outcome:  # fmt: skip
    """Run these tests until one fails. Limits are of processor time: a loaded machine kills no mutant."""
    home = os.environ.get("AOTFORGE_HOME") or str(ROOT / ".aotforge")
    arguments = ["-q", "-x", "--tb=no", "-p", "no:cacheprovider", "-m", "not slow", *tests]
    with tempfile.TemporaryFile() as output:
        process = fork_pytest(
            arguments, tree, {"AOTFORGE_HOME": home, **environment}, output.fileno(), loaded
        )
        seconds, status, failure = _wait(process, most_seconds)
        output.seek(0)
        text = output.read().decode(errors="replace")
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
    # a wrong name of a test ends with 4 too, without such a line
    assert failure or found or status in (0, 2, 3) or status < 0, (
        f"pytest ended with {status} on {tests}: {text}"
    )
    named = failure or (found[1] if found else f"pytest ended with {status}")
    return Outcome(failure=named if failure or status else "", seconds=seconds)


def _wait(process: int, most_seconds: float) -> tuple[float, int, str]:
    """Wait for the end, too much processor time, or a hang: the processor time used, exit code, and which limit was met or ""."""
    used, failure, idle_since, polls = 0.0, "", time.monotonic(), 0
    while not failure:
        time.sleep(0.05)
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            break
        if (polls := polls + 1) % 10:
            continue
        before, (used, runnable) = used, _session_use(process)
        if runnable or used > before:
            idle_since = time.monotonic()
        if used > most_seconds:
            failure = f"more than {most_seconds:.0f} s of processor time"
        elif time.monotonic() - idle_since > IDLE:
            failure = "a hang"
    # processes of the tests may outlive a crash of pytest
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    if failure:
        _, status = os.waitpid(process, 0)
    return used, os.waitstatus_to_exitcode(status), failure


def _session_use(session: int) -> tuple[float, bool]:
    """Processor time of a session's processes and their children that have ended; one could run now, or waits for a disk."""
    ticks, runnable = 0, False
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        if int(fields[3]) == session:
            ticks += sum(int(field) for field in fields[11:15])
            runnable = runnable or fields[0] in "RD"
    return ticks / os.sysconf("SC_CLK_TCK"), runnable


def with_tests(tree: Path, module: Module, run: Callable[[Killer], Result]) -> Result:
    """`run` with a function that runs the module's tests on a mutant. The unchanged module's tests must pass before and after it."""
    with tempfile.TemporaryDirectory() as folder:
        loaded = Path(folder) / "loaded"
        first = run_tests(tree, module.tests, {}, loaded=loaded)
        if not first.failure:
            preload(loaded.read_text().split())
    assert not first.failure, f"{module.name}: fails without a mutant: {first.failure}"

    def killer(environment: Mapping[str, str]) -> str:
        limit = SLOWER * first.seconds + 30
        return run_tests(
            tree, module.tests, {"PYTHONDONTWRITEBYTECODE": "1"} | dict(environment), most_seconds=limit
        ).failure

    result = run(killer)
    last = run_tests(tree, module.tests, {})
    assert not last.failure, f"{module.name}: its tests are not reliable: {last.failure}"
    return result


def recorded() -> dict[str, Result]:
    """Results of the last recorded run of each module."""
    rows = json.loads((_PLACE / "results.json").read_text())
    return {name: Result(module=name, **row) for name, row in rows.items()}


def save_result(folder: Path, result: Result) -> None:
    """A file for `read_results`, here or on another machine."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{re.sub(r'[^a-z_.]', '-', result.module)}.json").write_text(json.dumps(asdict(result)))


def read_results(folder: Path) -> list[Result]:
    """Results of the modules with a file in this folder."""
    return [Result(**json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]


def worse(results: Iterable[Result]) -> dict[str, tuple[float, ...]]:
    """Modules whose tests notice less than they did in the recorded run: the rates now and then."""
    before = recorded()
    return {
        now.module: (now.rate, before[now.module].rate)
        for now in results
        if now.module in before and now.rate < before[now.module].rate
    }


def write(results: Iterable[Result]) -> None:
    """Records results in results.json."""
    rows = {**recorded(), **{one.module: one for one in results}}
    order = [*(module.name for language in ("cpp", "python") for module in modules(language)), "isa"]
    kept = {
        name: {k: v for k, v in asdict(rows[name]).items() if k != "module"} for name in order if name in rows
    }
    (_PLACE / "results.json").write_text(json.dumps(kept, indent=1) + "\n")


def table(results: Iterable[Result]) -> str:
    """A table of results in Markdown."""
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
