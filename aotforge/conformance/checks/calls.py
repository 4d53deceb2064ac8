"""Checks that the calls of served PyTorch releases compile, and that others' do not.

In the programs, from `compat/pytorch_calls.yaml`, every use has a line, so that a compiler error names it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aotforge.base.html import render
from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.compilers import STANDARDS, WANTED, Compilation, Compiler
from aotforge.conformance.findings import Finding, failed, finding_from, not_run, passed
from aotforge.conformance.matrix_models import Calls, Row

NO_COMPILER = "no C++ compiler of the wanted versions"
_LISTED = 4
_VALUES = {
    "T4": "t4", "T2": "t2", "T1": "t1", "T0": "t0", "float": "1.0f", "bool": "true", "Stream": "stream",
    "int32_t": "static_cast<int32_t>(1)", "int64_t": "static_cast<int64_t>(0)",
        "uint64_t": "static_cast<uint64_t>(0)",
}  # fmt: skip
_BYTES = {
    "kUnknown": 0, "kUInt8": 1, "kInt8": 1, "kUInt16": 2, "kInt16": 2, "kFloat16": 2, "kBFloat16": 2,
        "kUInt32": 4,
    "kInt32": 4, "kFloat32": 4, "kUInt64": 8, "kInt64": 8,
}  # fmt: skip
_DIAGNOSTIC = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+)(?::\d+)?: (?:fatal )?error: (?P<text>.*)$", re.MULTILINE
)
_UNDEFINED = re.compile(r"undefined reference to [`'](?P<symbol>.+?)'(?:$|\n)")


@dataclass(frozen=True, kw_only=True)
class Program:
    """C++ source, and the use on each line (from 1) that has one."""

    name: str
    source: str
    uses: Mapping[int, str]

    def use_at(self, line: int) -> str:
        """The use that a line belongs to: of lines without one, the last before it."""
        found = [number for number in self.uses if number <= line]
        return self.uses[max(found)] if found else "the program's frame"


def make_program(calls: Calls, name: str) -> Program:
    """The program of one set; it returns 0 when `check_gpu` and the calls of inference succeed."""
    text = render("pytorch_calls.cpp.jinja", calls=calls, used=calls.sets[name], values=_VALUES, bytes=_BYTES)
    lines = [line.partition(" //@ ") for line in text.splitlines()]
    return Program(
        name=name,
        source="".join(f"{source}\n" for source, _, _ in lines),
        uses={number: use for number, (_, _, use) in enumerate(lines, 1) if use},
    )


def violations(program: Program, output: str) -> tuple[str, ...]:
    """Uses in the program itself that the compiler refuses, with its message."""
    found = (
        f"{program.use_at(int(match['line']))}: {match['text']}"
        for match in _DIAGNOSTIC.finditer(output)
        if match["file"].endswith("program.cpp") and any(n <= int(match["line"]) for n in program.uses)
    )
    return tuple(dict.fromkeys(found))


def explain_failure(program: Program, output: str) -> tuple[str, ...]:
    """The errors of a compiler or linker, each with the use that it concerns; at least one line."""
    missing = (f"{match['symbol']}: not in the library" for match in _UNDEFINED.finditer(output))
    found = (*violations(program, output), *dict.fromkeys(missing))
    if found:
        return found
    errors = [match["text"] for match in _DIAGNOSTIC.finditer(output)]
    return tuple(
        dict.fromkeys(errors or [line for line in output.splitlines() if line][-1:] or ["no message"])
    )


def rows_with_calls(context: CheckContext, *, served: bool = True) -> list[Row]:
    """Rows whose calls must compile and link, or those not served: theirs must not compile."""
    return [
        row
        for row in context.compat.rows
        if row.calls
        and context.compat.service(row).build == served
        and (not served or _is_read(context, row))
    ]


def _is_read(context: CheckContext, row: Row) -> bool:
    """The row's calls are those of its commits that take our level: a branch may move to another level."""
    compat = context.compat
    return bool(row.calls) and compat.level in compat.calls.sets[row.calls or ""].levels


def _by_program(context: CheckContext, rows: list[Row]) -> Iterator[tuple[Program, list[Row]]]:
    """Each set of calls with the rows that have it."""
    for name in dict.fromkeys(row.calls or "" for row in rows):
        yield make_program(context.compat.calls, name), [row for row in rows if row.calls == name]


def compile_calls(context: CheckContext, program: Program, compiler: Compiler, standard: str) -> Compilation:
    """A program of calls, linked with the release's library."""
    return context.compile(compiler, program.source, flags=[compiler.standard(standard)], hip=context.hip)


def check_calls(context: CheckContext) -> list[Finding]:
    """Every served set with every compiler and standard, against HIP's headers where they are installed."""
    findings = []
    for program, rows in _by_program(context, rows_with_calls(context)):
        outcomes = {
            f"{compiler.name} C++{standard}": compile_calls(context, program, compiler, standard)
            for compiler in context.compilers
            for standard in STANDARDS
        }
        for row in rows:
            what = f"the calls of PyTorch {row.pytorch} compile and link"
            evidence = f"{', '.join(outcomes)}; {context.hip.name}"
            evidence += f"; calls of {row.calls_of}" if row.calls_of else ""
            findings.append(
                finding_from("calls", what, _failures(program, outcomes), evidence, row=row.name)
                if outcomes
                else not_run("calls", what, NO_COMPILER, row=row.name)
            )
    families = {compiler.family for compiler in context.compilers}
    findings += [not_run("calls", f"with {name}", NO_COMPILER) for name in WANTED if name not in families]
    return findings + [
        not_run("calls", "refused or served", "its sources were not read", row=row.name)
        for row in context.compat.rows
        if row.status == "supported"
        and (row.calls is None or (context.compat.service(row).build and not _is_read(context, row)))
    ]


def _failures(program: Program, outcomes: Mapping[str, Compilation]) -> list[str]:
    """Each failure once, with the compilers that report it."""
    compilers: dict[str, list[str]] = {}
    for how, outcome in outcomes.items():
        if not outcome.ok:
            uses: dict[str, str] = {}
            for text in explain_failure(program, outcome.output):
                # compilers word the same error differently, so errors are grouped by the use
                uses.setdefault(text.split(": ", 1)[0], text)
            for text in list(uses.values())[:_LISTED]:
                compilers.setdefault(text, []).append(how)
    return [f"{text} [{', '.join(how)}]" for text, how in compilers.items()]


def check_refused(context: CheckContext) -> list[Finding]:
    """Rows that the matrix lists as not served: their calls do not compile."""
    findings = []
    for program, rows in _by_program(context, rows_with_calls(context, served=False)):
        outcome = None
        if context.compilers:
            flags = ["-std=c++17", "-fsyntax-only"]
            outcome = context.compile(context.compilers[-1], program.source, flags=flags, link=False)
        findings += [_refused_finding(row, program, outcome) for row in rows]
    return findings


def _refused_finding(row: Row, program: Program, outcome: Compilation | None) -> Finding:
    what = f"PyTorch {row.pytorch} cannot be built with it, as the matrix states"
    if outcome is None:
        return not_run("refused", what, NO_COMPILER, row=row.name)
    if outcome.ok:
        return failed("refused", what, "its calls compile: the matrix is wrong", row=row.name)
    if refused := violations(program, outcome.output):
        return passed("refused", what, refused[0], row=row.name)
    reason = explain_failure(program, outcome.output)[0]
    return not_run("refused", what, f"the compiler fails for another reason: {reason}", row=row.name)
