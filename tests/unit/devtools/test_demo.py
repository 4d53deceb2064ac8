"""The demo's own parts: unpacking, choosing calls, the report."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from aotforge.devtools.demo.demo_report import CallResult, DemoReport, OutputResult
from aotforge.devtools.demo.run_demo import problems_of, python_folders
from aotforge.errors import UnsupportedError, VerifyError
from kernels.flash.call import Case
from tests.support.families import plan_project

ROOT = Path(__file__).resolve().parents[3]


def test_calls_are_those_that_the_profile_serves() -> None:
    found = problems_of([plan_project(ROOT, archs=["gfx908"], profile="core").kernels])
    assert [(p.dtype, p.window_right, p.head_dim) for p in found] == [
        ("fp16", None, 64), ("fp16", 0, 64), ("bf16", None, 64), ("bf16", 0, 64),
    ]  # fmt: skip
    profiles = (("gfx908", "core"), ("gfx90a", "smoke"))
    both = [plan_project(ROOT, archs=[arch], profile=p).kernels for arch, p in profiles]
    assert {(p.dtype, p.head_dim) for p in problems_of(both)} == {("fp16", 32)}
    with pytest.raises(UnsupportedError):
        problems_of([both[0], ()])


def test_one_element_beyond_its_bound_fails_the_demo() -> None:
    outputs = [
        OutputResult(name=n, largest_error=0.1, largest_value=1.0, of_bound=b)
        for n, b in (("out", 1.0), ("dq", 1.01))
    ]
    result = CallResult(
        arch="gfx908", problem=Case(), outputs=tuple(outputs), forward_seconds=1.0, backward_seconds=2.0,
        preparing_seconds=0.5, served=(("attn_fwd", "ab" * 32, 7, 0.1),),
    )  # fmt: skip
    report = DemoReport(release="r", tarballs=("a.tar.gz",), results=(result,))
    assert "AN OUTPUT IS WRONG" in report.lines()[-1]
    with pytest.raises(VerifyError, match=r"gfx908 dq \(1.01 times"):
        report.require_passed()


def test_a_home_that_python_is_installed_in_is_not_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bin", "lib", ".ssh"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    found = python_folders(ROOT)
    assert {tmp_path / "bin", tmp_path / "lib", ROOT / "kernels"} <= found
    assert not [one for one in found if (tmp_path / ".ssh").is_relative_to(one)]
