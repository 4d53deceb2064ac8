"""Exceptions of a family's cases name the user's line; errors of this program pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aotforge.errors import RulesError, VerifyError
from aotforge.verify.invocation import case_errors, load_cases

CASES = """
def cases(kernel, keys):
    return [TYPES[kernel]]


TYPES = {}
"""


def test_an_exception_names_the_line_of_the_family(tmp_path: Path) -> None:
    folder = tmp_path / "kernels" / "norm"
    folder.mkdir(parents=True)
    (folder / "cases.py").write_text(CASES)
    cases = load_cases(folder.parent, "norm")
    assert cases is not None
    with pytest.raises(RulesError) as caught, case_errors(folder):
        cases("i32", {})
    assert caught.value.what == f"{folder / 'cases.py'}:3: KeyError: 'i32'"
    assert "return [TYPES[kernel]]" in caught.value.cause


@pytest.mark.parametrize(("text", "where"), [("import nothing_here", 1), ("x = 1\nif:", 2), ("\n\n1 / 0", 3)])
def test_cases_that_cannot_be_imported(tmp_path: Path, text: str, where: int) -> None:
    (tmp_path / "norm").mkdir()
    (tmp_path / "norm" / "cases.py").write_text(text)
    with pytest.raises(RulesError, match=re.escape(f"{tmp_path / 'norm' / 'cases.py'}:{where}: ")):
        load_cases(tmp_path, "norm")


def test_errors_of_this_program_pass(tmp_path: Path) -> None:
    with pytest.raises(VerifyError), case_errors(tmp_path):
        raise VerifyError("as it is")
