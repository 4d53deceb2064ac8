"""Comparison with the previous point release: what abidiff's exit status reports."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from aotforge.conformance.checks.baseline import _compare
from aotforge.conformance.checks.context import CheckContext
from aotforge.run.release_programs import ProgramResult


@pytest.mark.parametrize("status", [0, 4, 8, 12, 1, 2, 128, 132, 136, 140, 148, 152, -8])
def test_a_comparison_without_a_report_passes_only_when_nothing_is_lost(status: int, tmp_path: Path) -> None:
    """A shell reports 128 and the signal: 136 has the bits of an incompatible change, and no report."""
    programs = SimpleNamespace(compile=lambda *a, **k: ProgramResult(status=status, stdout="", stderr=""))
    context = cast(CheckContext, SimpleNamespace(programs=programs, work=tmp_path))
    (tmp_path / "symbols.xml").touch()
    found = _compare(context, "symbols", tmp_path / "symbols.xml", tmp_path / "lib.so")
    assert (found.status == "passed") == (status in (0, 4))
