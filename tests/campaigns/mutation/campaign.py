"""Mutants of modules, each run with the module's tests; rates are compared with the recorded ones."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.campaigns.mutation.schemata import HEADER, mutate
from tests.campaigns.mutation.syntax import changes
from tests.e2e.checkouts import copy_checkout

ROOT = Path(__file__).resolve().parents[3]
SEED = 12
SAMPLES: Mapping[str, int] = {"cpp": 10, "python": 12}
"""Mutants of a module that are run."""
AIMS: Mapping[str, float] = {"cpp": 0.85, "python": 0.9}
SLOWER = 10
"""A mutant is killed by time when its tests take this many times as long as without it, and a minute more."""
_PLACE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Result:
    """Mutants of a module: how many there are, were run, were noticed; names of those unnoticed and not
    equivalent; `sources`: the digest of the module's file at the time of the run."""

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


def modules(language: str) -> dict[str, list[str]]:
    """Modules of `modules.toml` in one language, with the tests that must notice their mutants."""
    rows = tomllib.loads((_PLACE / "modules.toml").read_text())[language]
    return {name: row["tests"] for name, row in rows.items()}


def sources_of(name: str) -> str:
    """The digest of a module's file."""
    path = ROOT / name if "/" in name else ROOT / "runtime/src" / name
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def known_equivalent() -> dict[str, str]:
    """Name of a mutant to the reason why no test can notice it."""
    return dict(json.loads((_PLACE / "equivalent.json").read_text()))


def sample(names: Sequence[str], most: int) -> list[str]:
    """At most `most`, chosen by name: a changed line of a module leaves the others of the sample as they
    are."""
    order = sorted(names, key=lambda name: hashlib.sha256(f"{SEED}/{name}".encode()).digest())
    chosen = set(order[:most])
    return [name for name in names if name in chosen]


def run_tests(tree: Path, tests: Sequence[str], environment: Mapping[str, str], seconds: float | None) -> str:
    """What noticed the mutant: the test that failed, or the time limit; '' for nothing."""
    home = os.environ.get("AOTFORGE_HOME") or str(ROOT / ".aotforge")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider"]
    own = {"AOTFORGE_HOME": home, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(tree), **environment}
    try:
        done = subprocess.run(
            [*command, "-m", "not slow", *tests],
            cwd=tree,
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
        )
    except subprocess.TimeoutExpired:
        return f"more than {seconds:.0f} s"
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return (found[1] if found else f"pytest ended with {done.returncode}") if done.returncode else ""


Plant = Callable[[str], Mapping[str, str]]
"""Puts a mutant into the tree, or gives the environment that selects it."""


def measured(
    tree: Path, module: str, tests: Sequence[str], names: Sequence[str], plant: Plant, most: int
) -> Result:
    """Runs a sample of a module's mutants."""
    began = time.monotonic()
    first = run_tests(tree, tests, {}, None)
    assert not first, f"{module}: fails without a mutant: {first}"
    limit = SLOWER * (time.monotonic() - began) + 60
    known, chosen = known_equivalent(), sample(names, most)
    real = [name for name in chosen if name not in known]
    survivors = []
    for name in real:
        by = run_tests(tree, tests, plant(name), limit)
        survivors += [] if by else [name]
        print(f"killed: {name}: {by}" if by else f"survives: {name}", flush=True)  # noqa: T201 - progress of hours
    return Result(
        module=module, mutants=len(names), run=len(chosen), killed=len(real) - len(survivors),
        equivalent=len(chosen) - len(real), survivors=survivors, sources=sources_of(module),
    )  # fmt: skip


def run_cpp(names: Iterable[str], most: int) -> Iterator[Result]:
    """One build holds all mutants of the library; a variable selects one."""
    with tempfile.TemporaryDirectory(prefix="aotforge-mutants-") as folder:
        tree, found = copy_checkout(Path(folder) / "tree"), list[str]()
        for name in modules("cpp"):
            file = tree / "runtime" / "src" / name
            file.write_text(mutate(name, file.read_text(), found))
        (tree / "runtime" / "src" / "mutants.h").write_text(HEADER)
        settings = tree / "runtime" / "CMakeLists.txt"
        settings.write_text(settings.read_text().replace("-Werror", "-w"))
        numbers = {mutant: str(number) for number, mutant in enumerate(found, 1)}
        for name in names:
            own = [mutant for mutant in found if mutant.startswith(f"{name}: ")]
            tests = modules("cpp")[name]
            yield measured(tree, name, tests, own, lambda mutant: {"AOTFORGE_MUTANT": numbers[mutant]}, most)


def run_python(names: Iterable[str], most: int) -> Iterator[Result]:
    """A mutant at a time is written into a copy of the tree."""
    with tempfile.TemporaryDirectory(prefix="aotforge-mutants-") as folder:
        tree = copy_checkout(Path(folder) / "tree")
        for name in names:
            file = tree / name
            source = file.read_text()
            texts = {f"{name}: {change}": text for change, text in changes(source).items()}

            def plant(mutant: str, file: Path = file, texts: Mapping[str, str] = texts) -> Mapping[str, str]:
                file.write_text(texts[mutant])
                return {}

            yield measured(tree, name, modules("python")[name], list(texts), plant, most)
            file.write_text(source)


def recorded() -> dict[str, Result]:
    """Results of the last recorded run of each module."""
    rows = json.loads((_PLACE / "results.json").read_text())
    return {name: Result(module=name, **row) for name, row in rows.items()}


def worse(results: Iterable[Result]) -> dict[str, tuple[float, float]]:
    """Modules whose tests notice less than they did in the recorded run: the rates now and then."""
    before = recorded()
    pairs = [(now, before[now.module]) for now in results if now.module in before]
    return {now.module: (now.rate, then.rate) for now, then in pairs if now.rate < then.rate}


def write(results: Iterable[Result]) -> None:
    """Records results in results.json."""
    rows = {**recorded(), **{one.module: one for one in results}}
    order = [*modules("cpp"), *modules("python")]
    kept = {name: asdict(rows[name]) for name in order if name in rows}
    for row in kept.values():
        del row["module"]
    (_PLACE / "results.json").write_text(json.dumps(kept, indent=1) + "\n")


RUNS = {"cpp": run_cpp, "python": run_python}


def main(arguments: Sequence[str]) -> int:
    """1 when a module's rate is below the recorded one."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.mutation", description=__doc__)
    parser.add_argument("module", nargs="*", help="modules of modules.toml; default: all")
    parser.add_argument("--changed", action="store_true", help="those that changed since their recorded run")
    parser.add_argument("--write", action="store_true", help="record the results in results.json")
    options = parser.parse_args(arguments)
    before = recorded()
    lower: dict[str, tuple[float, float]] = {}
    for language, run in RUNS.items():
        wanted = [name for name in modules(language) if not options.module or name in options.module]
        if options.changed:
            wanted = [n for n in wanted if n not in before or before[n].sources != sources_of(n)]
        for result in run(wanted, SAMPLES[language]) if wanted else ():
            print(f"{result.module}: {result.killed} of {result.run}: {result.rate:.0%}", flush=True)  # noqa: T201 - progress
            lower |= worse([result])
            if options.write:
                write([result])
    for name, (now, then) in lower.items():
        print(f"{name}: {now:.0%}, recorded: {then:.0%}", file=sys.stderr)  # noqa: T201 - a command's result
    return bool(lower) and not options.write
