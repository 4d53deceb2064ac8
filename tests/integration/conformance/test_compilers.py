"""The calls of PyTorch and the headers' names, with every compiler that PyTorch is built with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aotforge.conformance.check_release import check_release
from aotforge.conformance.compilers import WANTED, Compiler, find_compilers, standin_hip
from aotforge.formats.archive import Member
from tests.integration.conformance.test_check import SERVED, UTIL, of, red, rows
from tests.support.releases import RUNTIME, Tree, altered
from tests.support.runtime import CACHE, ROOT

pytestmark = pytest.mark.compiler


def _oldest_and_newest() -> tuple[Compiler, ...]:
    found = find_compilers(every=True)
    families = [[one for one in found if one.family == name] for name in ("gcc", "clang")]
    return tuple(dict.fromkeys(one for family in families for one in (*family[:1], *family[-1:])))


def test_the_oldest_and_the_newest_compilers(release: Path) -> None:
    """With HIP's own headers where they are installed."""
    assert_every_call_compiles(release, _oldest_and_newest())
    if len(find_compilers(every=True)) < sum(map(len, WANTED.values())):
        pytest.skip("older compilers are not installed: .ci/older-compilers")


@pytest.mark.slow
def test_every_compiler(release: Path) -> None:
    assert_every_call_compiles(release, find_compilers(every=True))


def assert_every_call_compiles(release: Path, wanted: tuple[Compiler, ...]) -> None:
    report = check_release(
        release, checkout=ROOT, cache=CACHE, jobs=2, development=True, compilers=wanted, only=["calls"]
    )
    own = {finding.row: finding for finding in of(report, "calls") if finding.row in SERVED}
    assert own.keys() == SERVED and report.ok, report.of("failed")
    for finding in own.values():
        tried = finding.evidence.partition(";")[0].split(", ")
        assert tried == [f"{one.name} C++{year}" for one in wanted for year in ("17", "20")]


def test_compilers_that_are_not_installed_are_not_passed(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    report = check_release(release, checkout=ROOT, cache=CACHE, jobs=2, development=True, only=["calls"])
    reported = {f.what for f in of(report, "calls") if f.status == "not run" and not f.row}
    assert reported == {f"with {family}" for family in WANTED}


def _clang() -> tuple[Compiler, ...]:
    found = [one for one in find_compilers(every=True) if one.family == "clang"]
    if not found:
        pytest.skip("no clang is installed")
    return tuple(found[-1:])


def _in_another_namespace(text: str) -> str:
    """util.h with LazyTensor declared in aotriton::v3::flash, as it was until November 2026, and flash.h
    still compiling."""
    eager = text.index("// A non-null `eager`")
    start, end = text.rindex("#if ", 0, eager), text.index("#ifndef _MSC_VER")
    return f"{text[:start]}namespace v3::flash {{\n{text[start:end]}}}\n{text[end:]}"


def _move_a_name(tree: Tree) -> None:
    util = tree[UTIL]
    assert isinstance(util, Member)
    tree[UTIL] = Member(content=_in_another_namespace(util.content.decode()).encode())


def test_a_name_in_another_namespace_turns_its_rows_red(release: Path, tmp_path: Path) -> None:
    folder = altered(release, tmp_path / "r", RUNTIME, _move_a_name)
    report = check_release(
        folder, checkout=ROOT, cache=CACHE, jobs=2, development=True, compilers=_clang(),
            hip=standin_hip(ROOT),
        only=("names", "calls"),
    )  # fmt: skip
    assert red(report) == rows("calls") | {("names", "")}, report.of("failed")
    (names,) = of(report, "names")
    assert "Record aotriton::LazyTensor is missing; aotriton::v3::flash::LazyTensor exists" in names.evidence
    assert any("aotriton::LazyTensor" in f.evidence for f in of(report, "calls"))


def test_names_need_a_clang(release: Path) -> None:
    others = [one for one in find_compilers(every=True) if one.family != "clang"]
    report = check_release(
        release, checkout=ROOT, cache=CACHE, development=True, compilers=others, hip=standin_hip(ROOT),
            only=["names"]
    )  # fmt: skip
    assert [(f.status, f.row) for f in of(report, "names")] == [("not run", "")]


def test_ci_installs_every_compiler() -> None:
    """gcc 12 is what `g++` is there."""
    text = "".join((ROOT / ".ci" / name).read_text() for name in ("run", "older-compilers"))
    packages = {f"g++-{version}" for version in WANTED["gcc"]} | {f"clang-{v}" for v in WANTED["clang"]}
    assert packages - set(re.findall(r"[\w+-]+", text)) == {"g++-12"}
