"""docs/planted-faults.md: the tests and problems that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
PAGE = (TESTS.parent / "docs" / "planted-faults.md").read_text(encoding="utf-8")


def test_the_page_names_tests_that_exist() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) >= 10
    assert {name for name in named if f"def {name}(" not in sources} == set()


def test_every_planted_fault_of_the_page_exists() -> None:
    folders = ("integration/kernels", "campaigns", "integration/pytorch")
    sources = "".join(path.read_text() for folder in folders for path in (TESTS / folder).glob("*.py"))
    cases = [line.split("|")[4].strip() for line in PAGE.splitlines() if re.match(r"\| \d+ \|", line)]
    assert len(cases) == 14
    assert [fault for fault in cases if fault not in sources and fault != "starts rounded to 8"] == []
