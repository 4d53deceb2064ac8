"""Checks that the calls of served PyTorch releases compile, and that others' do not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from aotforge.conformance.checks.context import CheckContext, Group
from aotforge.conformance.compilers import STANDARDS, Compilation, Compiler
from aotforge.conformance.findings import Finding, failed, finding_from, not_run, passed
from aotforge.conformance.matrix_models import Row
from aotforge.conformance.programs import Program, explain_failure, make_program, violations

NO_COMPILER = "no C++ compiler of the wanted versions"
_LISTED = 4


class CompileAttempt(NamedTuple):
    """A set of calls, compiled by one compiler in one standard."""

    calls: str
    how: str
    program: Program
    outcome: Compilation


def served_rows(context: CheckContext) -> list[Row]:
    """Rows whose calls must compile and link."""
    return [row for row in context.compat.rows if row.calls and context.compat.service(row).build]


def _refused_rows(context: CheckContext) -> list[Row]:
    """Rows that this release does not serve: their calls must not compile against it."""
    return [row for row in context.compat.rows if row.calls and not context.compat.service(row).build]


def _programs(context: CheckContext, rows: list[Row]) -> list[Program]:
    names = dict.fromkeys(row.calls for row in rows if row.calls)
    return [make_program(context.compat.calls, name) for name in names]


def calls_group(context: CheckContext) -> Group:
    """Every served set with every compiler and standard, against HIP's headers where they are installed."""
    parts = [
        partial(_try, context, program, compiler, standard)
        for program in _programs(context, served_rows(context))
        for compiler in context.compilers
        for standard in STANDARDS
    ]
    return Group(name="calls", parts=parts, finish=partial(_calls_findings, context))


def _try(context: CheckContext, program: Program, compiler: Compiler, standard: str) -> CompileAttempt:
    outcome = compile_calls(context, program, compiler, standard)
    return CompileAttempt(program.name, f"{compiler.name} C++{standard}", program, outcome)


def compile_calls(context: CheckContext, program: Program, compiler: Compiler, standard: str) -> Compilation:
    """A program of calls, linked with the release's library, which LD_LIBRARY_PATH must name when it is run."""
    return context.compile(compiler, program.source, flags=[compiler.standard(standard)], hip=context.hip)


def _calls_findings(context: CheckContext, attempts: list[CompileAttempt]) -> list[Finding]:
    findings = []
    for row in served_rows(context):
        own = [attempt for attempt in attempts if attempt.calls == row.calls]
        what = f"the calls of PyTorch {row.pytorch} compile and link"
        if not own:
            findings.append(not_run("calls", what, NO_COMPILER, row=row.name))
            continue
        evidence = f"{', '.join(attempt.how for attempt in own)}; {context.hip.name}"
        evidence += f"; calls of {row.calls_of}" if row.calls_of else ""
        findings.append(finding_from("calls", what, _failures(own), evidence, row=row.name))
    findings += [not_run("calls", f"with {name}", "not installed") for name in context.missing]
    return findings + [
        not_run("calls", "refused or served", "its sources were not read", row=row.name)
        for row in context.compat.rows
        if row.calls is None and row.status == "supported"
    ]


def _failures(attempts: list[CompileAttempt]) -> list[str]:
    """Each failure once, with the compilers that report it."""
    compilers: dict[str, list[str]] = {}
    for attempt in attempts:
        if not attempt.outcome.ok:
            uses: dict[str, str] = {}
            for text in explain_failure(attempt.program, attempt.outcome.output):
                # compilers word the same error differently, so errors are grouped by the use
                uses.setdefault(text.split(": ", 1)[0], text)
            for text in list(uses.values())[:_LISTED]:
                compilers.setdefault(text, []).append(attempt.how)
    return [f"{text} [{', '.join(how)}]" for text, how in compilers.items()]


def refused_group(context: CheckContext) -> Group:
    """Rows that the matrix lists as not served: their calls do not compile."""
    parts: list[Callable[[], CompileAttempt]] = [
        partial(_try_refused, context, program, compiler)
        for compiler in context.compilers[-1:]
        for program in _programs(context, _refused_rows(context))
    ]
    return Group(name="refused", parts=parts, finish=partial(_refused_findings, context))


def _try_refused(context: CheckContext, program: Program, compiler: Compiler) -> CompileAttempt:
    outcome = context.compile(compiler, program.source, flags=["-std=c++17", "-fsyntax-only"], link=False)
    return CompileAttempt(program.name, f"{compiler.name} C++17", program, outcome)


def _refused_findings(context: CheckContext, attempts: list[CompileAttempt]) -> list[Finding]:
    by_calls = {attempt.calls: attempt for attempt in attempts}
    return [_refused_finding(row, by_calls.get(row.calls or "")) for row in _refused_rows(context)]


def _refused_finding(row: Row, attempt: CompileAttempt | None) -> Finding:
    what = f"PyTorch {row.pytorch} cannot be built with it, as the matrix states"
    if attempt is None:
        return not_run("refused", what, NO_COMPILER, row=row.name)
    if attempt.outcome.ok:
        return failed("refused", what, "its calls compile: the matrix is wrong", row=row.name)
    if refused := violations(attempt.program, attempt.outcome.output):
        return passed("refused", what, f"{refused[0]} [{attempt.how}]", row=row.name)
    reason = explain_failure(attempt.program, attempt.outcome.output)[0]
    return not_run("refused", what, f"the compiler fails for another reason: {reason}", row=row.name)
