"""Checks on files of others: memory and texts stay small, whatever the files repeat."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aotforge.conformance.checks import names
from aotforge.conformance.checks.baseline import _compare
from aotforge.conformance.checks.calls import Program, explain_failure
from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.checks.library import build_machine_traces
from aotforge.conformance.compilers import Compiler, _shortened
from aotforge.conformance.findings import finding_from
from aotforge.sandbox.release_programs import ProgramResult

MIB = 1 << 20


def peak(work: Callable[[], object]) -> int:
    """Bytes of memory that the work takes at most, besides its arguments."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"/tmp/a " * 200_000, 1),
        (b" ".join(b"/tmp/%d" % number for number in range(200_000)), 32),
        (b"/tmp/" + b"a" * 8 * MIB, 1),
    ],
    ids=["the same path", "other paths", "a long path"],
)
def test_paths_of_a_builder_are_quoted_in_part(data: bytes, count: int, tmp_path: Path) -> None:
    """All matches were kept before duplicates were dropped: 708 kB of archive took a gigabyte."""
    found: list[str] = []
    assert peak(lambda: found.extend(build_machine_traces(data, tmp_path))) < MIB
    assert len(found) == count and max(map(len, found)) <= 200


def test_a_finding_quotes_the_first_violations_and_the_beginning_of_each() -> None:
    used = peak(lambda: finding_from("a", "b", (f"{number} {'x' * 10_000}" for number in range(5000))))
    found = finding_from("a", "b", (f"{number} {'x' * 10_000}" for number in range(5000)))
    assert used < MIB and len(found.evidence) < 13_000
    assert found.evidence.startswith("0 x") and found.evidence.endswith("x; and 4988 more")


def declared(name: str, *inner: dict[str, Any], kind: str = "NamespaceDecl") -> dict[str, Any]:
    return {
        "kind": kind,
        "name": name,
        "inner": inner,
        "completeDefinition": True,
        "type": {"qualType": "int"},
    }


def test_a_class_with_a_long_name_is_not_repeated_for_each_member() -> None:
    fields = [declared(f"f{number}", kind="FieldDecl") for number in range(1000)]
    dump = json.dumps(
        declared(
            "aotriton",
            declared("k" * 50_000, *fields, kind="CXXRecordDecl"),
            declared("Short", *fields, kind="CXXRecordDecl"),
        )
    )
    assert peak(lambda: names.names_of_dump(dump)) < 8 * MIB
    assert len(names.names_of_dump(dump)) == 1001


def test_names_that_exist_elsewhere_are_quoted_in_part() -> None:
    wanted = frozenset({names.PublicName("Field", "aotriton::A::x", "int")})
    found = frozenset(names.PublicName("Field", f"aotriton::B{number}::x", "int") for number in range(1000))
    assert [len(line) < 300 for line in names.differences(wanted, found)] == [True]


@pytest.mark.parametrize("dump", ['{"inner":[' * 5000, '{"kind": "Name'], ids=["deep", "cut"])
def test_headers_whose_syntax_tree_is_not_read_fail_the_check(
    dump: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3000 nested namespaces, which are 20 kB, ended `check` with a traceback."""
    programs = SimpleNamespace(compile=lambda *a, **k: ProgramResult(status=0, stdout=dump, stderr=""))
    monkeypatch.setattr(names, "read_names", lambda path: frozenset())
    (found,) = names.check_names(context(programs))
    assert found.status == "failed" and "is too large or too deep" in found.evidence


def context(programs: object) -> CheckContext:
    clang = Compiler(family="clang", version=14, path=Path("/usr/bin/clang++-14"), identity="")
    compat = SimpleNamespace(release=SimpleNamespace(api_level="0.11.2b"))
    hip = SimpleNamespace(include=Path("/hip"), flags=())
    values = {"compilers": [clang], "compat": compat, "hip": hip, "prefix": Path("/x"), "work": Path("/w")}
    return cast(CheckContext, SimpleNamespace(programs=programs, checkout=Path("/c"), **values))


@pytest.mark.parametrize("status", [0, 4, 8, 12, 1, 2, 128, 132, 136, 140, 148, 152, -8])
def test_a_comparison_without_a_report_passes_only_when_nothing_is_lost(status: int, tmp_path: Path) -> None:
    """A shell reports 128 and the signal: 136 has the bits of an incompatible change, and no report."""
    programs = SimpleNamespace(compile=lambda *a, **k: ProgramResult(status=status, stdout="", stderr=""))
    (tmp_path / "symbols.xml").touch()
    found = _compare(context(programs), "symbols", tmp_path / "symbols.xml", tmp_path / "lib.so")
    assert (found.status == "passed") == (status in (0, 4))


def test_lines_of_a_compiler_are_bounded() -> None:
    """Patterns that are quadratic in the length of a line computed for hours: a header decides what a message has."""
    text = _shortened("x" * 10**6 + "\n" + "y\n" * 2000)
    assert text.splitlines() == ["x" * 2000, *["y"] * 999]
    began = time.process_time()
    explained = explain_failure(
        Program(name="p", source="", uses={}), _shortened("undefined reference to `" * 50_000)
    )
    assert explained and time.process_time() - began < 60  # it took 266 s
