"""Mutants of the emulator's instruction table: one of each instruction at once, because each instruction has tests of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.campaigns.mutation.campaign import ROOT, Result, equivalents, sample
from vgpu.emulator.isa import INSTRUCTIONS

TESTS = [
    f"tests/integration/vgpu/emulator/test_{kind}_instructions.py" for kind in ("scalar", "vector", "packed")
]
"""Their tests have the instruction's name as a parameter. Wave instructions call C functions and are left out."""
FORMS = ("scalar", "vector", "packed")
_EXCHANGED = (
    (r"(?<![<-])<(?![<=])", "<="), (r"(?<![>-])>(?![>=])", ">="), (r"<=(?!=)", "<"), (r">=(?!=)", ">"),
    (r"==", "!="), (r"!=", "=="), (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" & ", " | "), (r" \| ", " & "),
    (r" \^ ", " | "), (r"<<", ">>"), (r">>", "<<"), (r" \|\| ", " && "), (r" && ", " || "), (r"~(?=[\w(])", ""), (r"!(?=[\w(])", ""),
    (r"\bmin(?!max)", "max"), (r"\bmax(?!min)", "min"), (r"\bS0\.", "S1."), (r"\bS1\.", "S0."), (r"\bS2\.", "S1."),
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
    found = []
    for pattern, new in _EXCHANGED:
        for at in re.finditer(pattern, code):
            old = at[0]
            if old.startswith("S") and types.get(old[:2]) != types.get(new[:2]):
                continue
            found.append(
                (
                    at.start(),
                    old.strip(),
                    new.strip() or "nothing",
                    code[: at.start()] + new + code[at.end() :],
                )
            )
    for at in _NUMBER.finditer(code):
        found.append(
            (at.start(), at[0], f"{at[0]} + 1", f"{code[: at.start()]}({at[0]} + 1){code[at.end() :]}")
        )
    for place, old, new, text in sorted(found):
        yield IsaMutant(
            instruction=instruction, name=f"isa: {instruction}: {old} -> {new} at {place}", code=text
        )


def chosen(most: int, seed: int) -> list[list[IsaMutant]]:
    """`most` batches, with one mutant of each instruction that has as many."""
    own: dict[str, list[IsaMutant]] = {}
    for mutant in mutants():
        own.setdefault(mutant.instruction, []).append(mutant)
    samples = [sample(some, most, lambda mutant: mutant.name, seed) for some in own.values()]
    return [[some[number] for some in samples if number < len(some)] for number in range(most)]


def run(names: Sequence[str], *, most: int, seed: int) -> Iterator[Result]:
    """The result of the table."""
    if names and "isa" not in names:
        return
    known, survivors, count, equivalent = equivalents(), [], 0, 0
    assert not _failing([]), "tests fail without a mutant"
    for batch in chosen(most, seed):
        failing = _failing(batch)
        count += len(batch)
        for mutant in batch:
            if mutant.name in known:
                equivalent += 1
            elif mutant.instruction not in failing:
                survivors.append(mutant.name)
                print(f"survives: {mutant.name}: {mutant.code}", flush=True)  # noqa: T201 - progress
    killed = count - equivalent - len(survivors)
    yield Result(
        module="isa", mutants=len(mutants()), run=count, killed=killed, equivalent=equivalent, survivors=survivors
    )  # fmt: skip


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
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.campaigns.mutation.isa_plugin",
             "--tb=no", *TESTS],
            cwd=ROOT, env=os.environ | places, stdout=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        failing: dict[str, bool] = json.loads(found.read_text())
    assert any(not fails for fails in failing.values()), "every test fails: the mutants do not compile"
    return {name for name, fails in failing.items() if fails}
