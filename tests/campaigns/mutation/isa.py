"""Mutants of the emulator's instruction table: one of each instruction at once, because each instruction has
tests of its own.

It is a pytest plugin too, which plants changed statements and records which instructions' tests fail.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

import pytest

from tests.campaigns.mutation.campaign import ROOT, Result, known_equivalent, sample, sources_of
from vgpu.emulator.isa import INSTRUCTIONS

FORMS = ("scalar", "vector", "packed")
"""Those whose tests have the instruction's name as a parameter. Wave instructions call C functions and are
left out."""
TESTS = [f"tests/integration/vgpu/emulator/test_{form}_instructions.py" for form in FORMS]
_EXCHANGED = (
    (r"(?<![<-])<(?![<=])", "<="), (r"(?<![>-])>(?![>=])", ">="), (r"<=(?!=)", "<"), (r">=(?!=)", ">"),
    (r"==", "!="), (r"!=", "=="), (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" & ", " | "),
    (r" \| ", " & "), (r" \^ ", " | "), (r"<<", ">>"), (r">>", "<<"), (r" \|\| ", " && "),
    (r" && ", " || "), (r"~(?=[\w(])", ""), (r"!(?=[\w(])", ""), (r"\bmin(?!max)", "max"),
    (r"\bmax(?!min)", "min"), (r"\bS0\.", "S1."), (r"\bS1\.", "S0."), (r"\bS2\.", "S1."),
)  # fmt: skip
_NUMBER = re.compile(r"(?<![\w.])(?:0x[0-9a-f]+|\d+)u?(?![\w.])")
_failing: dict[str, bool] = {}


def mutants() -> dict[str, tuple[str, str]]:
    """Instruction and changed statement of every mutant by its name, instruction by instruction."""
    rows = [(name, entry.code) for name, entry in INSTRUCTIONS.items() if entry.form in FORMS]
    return {name: (one, text) for one, code in rows for name, text in _of(one, code)}


def _of(instruction: str, code: str) -> Iterator[tuple[str, str]]:
    types = dict(re.findall(r"\b(S\d)\.(\w+)", code))
    found = [
        (at, new.strip() or "nothing", new)
        for pattern, new in _EXCHANGED
        for at in re.finditer(pattern, code)
        if not at[0].startswith("S") or types.get(at[0][:2]) == types.get(new[:2])
    ]
    found += [(at, f"{at[0]} + 1", f"({at[0]} + 1)") for at in _NUMBER.finditer(code)]
    for at, named, new in sorted(found, key=lambda one: (one[0].start(), one[0][0].strip(), one[1])):
        name = f"isa: {instruction}: {at[0].strip()} -> {named} at {at.start()}"
        yield name, code[: at.start()] + new + code[at.end() :]


def run_isa(_names: Iterable[str], most: int) -> Iterator[Result]:
    """The result of the table: `most` batches, with one mutant of each instruction that has as many."""
    every = mutants()
    own: dict[str, list[str]] = {}
    for name, (instruction, _) in every.items():
        own.setdefault(instruction, []).append(name)
    samples = [sample(some, most) for some in own.values()]
    assert not _failing_with({}), "tests fail without a mutant"
    known, survivors, chosen = known_equivalent(), [], [name for some in samples for name in some]
    for number in range(most):
        batch = [some[number] for some in samples if number < len(some)]
        failing = _failing_with(dict(every[name] for name in batch))
        survivors += [name for name in batch if name not in known and every[name][0] not in failing]
    equivalent = sum(name in known for name in chosen)
    yield Result(
        module="isa", mutants=len(every), run=len(chosen),
        killed=len(chosen) - equivalent - len(survivors), equivalent=equivalent, survivors=survivors,
        sources=sources_of("isa"),
    )  # fmt: skip


def _failing_with(planted: dict[str, str]) -> set[str]:
    """Instructions whose tests fail with these statements in the table."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "failing.json"
        own = {
            "AOTFORGE_TEST_PLANTED": json.dumps(planted),
            "AOTFORGE_TEST_FAILING": str(found),
            "AOTFORGE_CACHE": folder,
        }
        command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", "-p", __name__]
        output = subprocess.DEVNULL
        subprocess.run([*command, *TESTS], cwd=ROOT, env=os.environ | own, stdout=output, check=False)
        failing: dict[str, bool] = json.loads(found.read_text())
    assert any(not fails for fails in failing.values()), "every test fails: the mutants do not compile"
    return {name for name, fails in failing.items() if fails}


def pytest_configure() -> None:
    """Before the tests are imported; entries are frozen for everyone else."""
    for name, code in json.loads(os.environ["AOTFORGE_TEST_PLANTED"]).items():
        object.__setattr__(INSTRUCTIONS[name], "code", code)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attributes a failure to the instruction that the test is for."""
    report = yield
    name = item.callspec.params.get("name") if hasattr(item, "callspec") else None
    if name is not None:
        _failing[str(name)] = _failing.get(str(name), False) or report.failed
    return report


def pytest_sessionfinish() -> None:
    """Writes the record."""
    Path(os.environ["AOTFORGE_TEST_FAILING"]).write_text(json.dumps(_failing))
