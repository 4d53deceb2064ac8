"""Programs that use AOTriton as one PyTorch release does, generated from `compat/pytorch_calls.yaml`.

Every use is on a line of its own, so that a compiler error at a line names the use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from aotforge.base.html import render
from aotforge.conformance.matrix_models import Calls

_VALUES = {
    "T4": "t4", "T2": "t2", "T1": "t1", "T0": "t0", "float": "1.0f", "bool": "true", "Stream": "stream",
    "int32_t": "static_cast<int32_t>(1)", "int64_t": "static_cast<int64_t>(0)", "uint64_t": "static_cast<uint64_t>(0)",
}  # fmt: skip
_BYTES = {
    "kUnknown": 0, "kUInt8": 1, "kInt8": 1, "kUInt16": 2, "kInt16": 2, "kFloat16": 2, "kBFloat16": 2, "kUInt32": 4,
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
    """The program of one set. It returns 0 when `check_gpu` and the calls of inference succeed without device memory."""
    text = render("pytorch_calls.cpp.jinja", calls=calls, used=calls.sets[name], values=_VALUES, bytes=_BYTES)
    lines = [line.partition(" //@ ") for line in text.splitlines()]
    return Program(
        name=name,
        source="".join(f"{source}\n" for source, _, _ in lines),
        uses={number: use for number, (_, _, use) in enumerate(lines, 1) if use},
    )


def violations(program: Program, output: str) -> tuple[str, ...]:
    """Uses in the program itself that the compiler refuses, with its message; none when it failed for another reason."""
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
