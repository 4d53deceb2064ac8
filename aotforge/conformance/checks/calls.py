"""Each PyTorch's calls, compiled and linked against the release; and those that must be refused, refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from aotforge.conformance.checks.context import CheckContext, Group
from aotforge.conformance.compilers import STANDARDS, Compilation, Compiler
from aotforge.conformance.findings import Finding, failed, finding_from, not_run, passed
from aotforge.conformance.matrix_models import Row
from aotforge.conformance.programs import Program, explain_failure, make_program, violations

_FIRST = 4


class CompileAttempt(NamedTuple):
    """A set of calls, compiled one way."""

    calls: str
    how: str
    program: Program
    outcome: Compilation


def served_rows(context: CheckContext) -> list[Row]:
    """Rows whose calls must compile and link."""
    return [row for row in context.compat.rows if row.calls and context.compat.service(row).build]


def refused_sets(context: CheckContext) -> dict[str, list[Row]]:
    """Sets of calls of rows that this release does not serve: their sources must not compile against it."""
    found: dict[str, list[Row]] = {}
    for row in context.compat.rows:
        if row.calls and not context.compat.service(row).build:
            found.setdefault(row.calls, []).append(row)
    return found


def calls_group(context: CheckContext) -> Group:
    """Every served set with every compiler and standard, against HIP's headers where they are installed."""
    parts: list[Callable[[], CompileAttempt]] = []
    for name in dict.fromkeys(row.calls for row in served_rows(context) if row.calls):
        program = make_program(context.compat.calls, name)
        for compiler in context.compilers:
            parts += [partial(_try, context, program, compiler, standard) for standard in STANDARDS]
    return Group(name="calls", parts=parts, finish=partial(_judge, context))


def _try(context: CheckContext, program: Program, compiler: Compiler, standard: str) -> CompileAttempt:
    outcome = compile_calls(context, program, compiler, standard)
    return CompileAttempt(program.name, f"{compiler.name} C++{standard}", program, outcome)


def compile_calls(context: CheckContext, program: Program, compiler: Compiler, standard: str) -> Compilation:
    """A program of calls against the release's headers and library. It finds the library by LD_LIBRARY_PATH when it is run."""
    hip = context.hip
    includes = [context.prefix / "include", *([hip.include] if hip.include else [])]
    return context.compilations.compile(
        compiler,
        program.source,
        includes=includes,
        inputs=[context.headers, hip.digest],
        flags=[compiler.standard(standard), *hip.flags],
        objects=[context.library],
    )


def _judge(context: CheckContext, tried: list[CompileAttempt]) -> list[Finding]:
    findings = []
    for row in served_rows(context):
        mine = [one for one in tried if one.calls == row.calls]
        what = f"the calls of PyTorch {row.pytorch} compile and link"
        if not mine:
            findings.append(not_run("calls", what, "no C++ compiler of the wanted versions", row=row.name))
            continue
        evidence = f"{', '.join(one.how for one in mine)}; {context.hip.name}"
        if row.calls_of:
            evidence += f"; calls of {row.calls_of}"
        findings.append(finding_from("calls", what, _complaints(mine), evidence, row=row.name))
    for name in context.missing:
        findings.append(not_run("calls", f"with {name}", "not installed"))
    findings += _unread(context)
    return findings


def _complaints(tried: list[CompileAttempt]) -> list[str]:
    """Each complaint once, with the compilers that made it."""
    by: dict[str, list[str]] = {}
    for one in tried:
        if not one.outcome.ok:
            uses: dict[str, str] = {}
            for text in explain_failure(one.program, one.outcome.output):
                # compilers word the same trouble differently, so it is told by its use
                uses.setdefault(text.split(": ", 1)[0], text)
            for text in list(uses.values())[:_FIRST]:
                by.setdefault(text, []).append(one.how)
    return [f"{text} [{', '.join(how)}]" for text, how in by.items()]


def _unread(context: CheckContext) -> list[Finding]:
    """Supported rows without a set of calls: nothing to compile."""
    return [
        not_run("calls", "refused or served", "what its sources call was not read", row=row.name)
        for row in context.compat.rows
        if row.calls is None and row.status == "supported"
    ]


def refused_group(context: CheckContext) -> Group:
    """Rows that the matrix says are not served: their calls do not compile."""
    parts: list[Callable[[], CompileAttempt]] = []
    if context.compilers:
        compiler = context.compilers[-1]
        parts = [
            partial(_try_refused, context, make_program(context.compat.calls, name), compiler)
            for name in refused_sets(context)
        ]
    return Group(name="refused", parts=parts, finish=partial(_judge_refused, context))


def _try_refused(context: CheckContext, program: Program, compiler: Compiler) -> CompileAttempt:
    outcome = context.compilations.compile(
        compiler,
        program.source,
        includes=[
            context.prefix / "include",
            *([context.standin.include] if context.standin.include else []),
        ],
        inputs=[context.headers, context.standin.digest],
        flags=["-std=c++17", "-fsyntax-only"],
    )
    return CompileAttempt(program.name, f"{compiler.name} C++17", program, outcome)


def _judge_refused(context: CheckContext, tried: list[CompileAttempt]) -> list[Finding]:
    by = {one.calls: one for one in tried}
    findings = []
    for name, rows in refused_sets(context).items():
        for row in rows:
            what = f"PyTorch {row.pytorch} cannot be built with it, as the matrix says"
            one = by.get(name)
            if one is None:
                findings.append(
                    not_run("refused", what, "no C++ compiler of the wanted versions", row=row.name)
                )
            elif one.outcome.ok:
                findings.append(
                    failed("refused", what, "its calls compile: the matrix is wrong", row=row.name)
                )
            elif refused := violations(one.program, one.outcome.output):
                findings.append(passed("refused", what, f"{refused[0]} [{one.how}]", row=row.name))
            else:
                reason = explain_failure(one.program, one.outcome.output)[0]
                findings.append(
                    not_run("refused", what, f"the compiler fails for another reason: {reason}", row=row.name)
                )
    return findings
