"""Mutants of the emulator's instruction table: one of each instruction at once, because each instruction has
tests of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.campaigns.mutation.campaign import ROOT, Result, equivalents, sample, sources_of
from vgpu.emulator.isa import INSTRUCTIONS

TESTS = [
    f"tests/integration/vgpu/emulator/test_{kind}_instructions.py" for kind in ("scalar", "vector", "packed")
]
"""Their tests have the instruction's name as a parameter. Wave instructions call C functions and are left
out."""
FORMS = ("scalar", "vector", "packed")
_EXCHANGED = (
    (r"(?<![<-])<(?![<=])", "<="), (r"(?<![>-])>(?![>=])", ">="), (r"<=(?!=)", "<"), (r">=(?!=)", ">"),
    (r"==", "!="), (r"!=", "=="), (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" & ", " | "),
    (r" \| ", " & "),
    (r" \^ ", " | "), (r"<<", ">>"), (r">>", "<<"), (r" \|\| ", " && "), (r" && ", " || "), (r"~(?=[\w(])",
    ""), (r"!(?=[\w(])", ""),
    (r"\bmin(?!max)", "max"), (r"\bmax(?!min)", "min"), (r"\bS0\.", "S1."), (r"\bS1\.", "S0."), (r"\bS2\.",
    "S1."),
)  # fmt: skip
_NUMBER = re.compile(r"(?<![\w.])(?:0x[0-9a-f]+|\d+)u?(?![\w.])")


@dataclass(frozen=True, kw_only=True)
class IsaMutant:
    """One change of one instruction's statement."""

    instruction: str
    name: str
    code: str


def mutants() -> list[IsaMutant]:
    """Every mutant, instruction by instruction."""
    return [
        made for name, entry in INSTRUCTIONS.items() if entry.form in FORMS for made in _of(name, entry.code)
    ]


def _of(instruction: str, code: str) -> Iterator[IsaMutant]:
    types = dict(re.findall(r"\b(S\d)\.(\w+)", code))
    found = [
        (at.start(), at[0].strip(), new.strip() or "nothing", code[: at.start()] + new + code[at.end() :])
        for pattern, new in _EXCHANGED
        for at in re.finditer(pattern, code)
        if not at[0].startswith("S") or types.get(at[0][:2]) == types.get(new[:2])
    ]
    found += [
        (at.start(), at[0], f"{at[0]} + 1", f"{code[: at.start()]}({at[0]} + 1){code[at.end() :]}")
        for at in _NUMBER.finditer(code)
    ]
    for place, old, new, text in sorted(found):
        name = f"isa: {instruction}: {old} -> {new} at {place}"
        yield IsaMutant(instruction=instruction, name=name, code=text)


def chosen(most: int) -> list[list[IsaMutant]]:
    """`most` batches, with one mutant of each instruction that has as many."""
    own: dict[str, list[IsaMutant]] = {}
    for mutant in mutants():
        own.setdefault(mutant.instruction, []).append(mutant)
    samples = [sample(some, most, lambda mutant: mutant.name) for some in own.values()]
    return [[some[number] for some in samples if number < len(some)] for number in range(most)]


def run_isa(_names: Iterable[str], most: int) -> Iterator[Result]:
    """The result of the table."""
    assert not _failing([]), "tests fail without a mutant"
    known, survivors, run, equivalent = equivalents(), [], 0, 0
    for batch in chosen(most):
        failing = _failing(batch)
        real = [mutant for mutant in batch if mutant.name not in known]
        run, equivalent = run + len(batch), equivalent + len(batch) - len(real)
        survivors += [mutant.name for mutant in real if mutant.instruction not in failing]
    yield Result(
        module="isa",
        mutants=len(mutants()),
        run=run,
        killed=run - equivalent - len(survivors),
        equivalent=equivalent,
        survivors=survivors,
        sources=sources_of("isa"),
    )


def _failing(batch: Sequence[IsaMutant]) -> set[str]:
    """Instructions whose tests fail with these mutants in the table."""
    with tempfile.TemporaryDirectory() as folder:
        planted, found = Path(folder) / "planted.json", Path(folder) / "failing.json"
        planted.write_text(json.dumps({mutant.instruction: mutant.code for mutant in batch}))
        places = {
            "AOTFORGE_TEST_PLANTED": str(planted),
            "AOTFORGE_TEST_FAILING": str(found),
            "AOTFORGE_CACHE": folder,
        }
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p",
            "tests.campaigns.mutation.isa_plugin",
             "--tb=no", *TESTS],
            cwd=ROOT, env=os.environ | places, stdout=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        failing: dict[str, bool] = json.loads(found.read_text())
    assert any(not fails for fails in failing.values()), "every test fails: the mutants do not compile"
    return {name for name, fails in failing.items() if fails}
