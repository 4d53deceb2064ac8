"""The page of acceptance can be measured in pieces: results are kept, and executed again when images are others."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from . import page
from .grids import Case
from .page import Record, measure
from .stack import Stack

CASES = [Case(test="flash", dtype="fp16", seqlen_q=n) for n in (1, 2, 3)]


@dataclass
class Fake:
    """What executes cases: `executed` are those that it was given."""

    images: str
    executed: list[Case]

    def plan(self, *_: object) -> Any:
        return SimpleNamespace(settings_digest=self.images, source_digest="s", jobs=())

    def run(self, cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
        for case in cases:
            self.executed.append(case)
            results = [{"name": "out", "error": 0.5, "reference_error": 1.0, "limit": 6.0}]
            yield {"case": asdict(case), "results": results, "seconds": 0.0}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake(images="a", executed=[])
    monkeypatch.setattr(page, "plan_of", made.plan)
    monkeypatch.setattr(page, "build_objects", lambda: None)
    monkeypatch.setattr(page, "make_stack", lambda *_: made)
    return made


def test_results_are_kept(fake: Fake, tmp_path: Path) -> None:
    record = Record(path=tmp_path / "record")
    _, lines = measure(CASES, record, seconds=-1)
    assert [line.case for line in lines] == fake.executed == CASES[:1]
    assert record.path is not None
    with record.path.open("a") as file:
        file.write('{"images": "a s", "case"')  # the process was killed
    _, lines = measure(CASES, record)
    assert [line.case for line in lines] == fake.executed == CASES
    assert all(line.passed and line.factor == 0.5 for line in lines)
    measure(CASES, record)
    assert fake.executed == CASES
    fake.images = "b"
    measure(CASES, record)
    assert fake.executed == CASES * 2


def test_a_case_that_fails_is_no_factor(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    nan = {"name": "call", "error": float("nan"), "reference_error": 0.0, "limit": 0.0}
    failed = {"case": asdict(CASES[0]), "results": [nan], "seconds": 0.0}
    monkeypatch.setattr(fake, "run", lambda _: iter([failed]))
    plan, lines = measure(CASES[:1])
    text = page.page(plan, lines, 1, 1)
    assert "| 1 | 0 |" in text and f"- {CASES[0].name()}" in text


def test_a_worker_ends_with_its_iterator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that floods standard error and never ends."""
    flood = "import sys, time; sys.stderr.write('x' * 300000); print('{}', flush=True); time.sleep(600)"
    monkeypatch.setattr("tests.integration.pytorch.stack.WORKER", [sys.executable, "-c", flood])
    found = Stack(device=Path(), calls={}, environment={}).results([])
    assert next(iter(found)) == {}
    found.close()  # type: ignore[attr-defined]
