"""What went wrong, in words: from the interpreter's fault report to an ExecutionError."""

from __future__ import annotations

from typing import Any

from aotforge.emulator.values import Line, SourceMap
from aotforge.errors import ExecutionError
from aotforge.interpret.memory import Memory

_WHAT = {
    1: "reads {bytes} bytes of global memory outside its buffers",
    2: "writes {bytes} bytes of global memory outside its buffers",
    3: "touches {bytes} bytes of LDS from {address:#x} on, outside of what the workgroup has",
    4: "touches {bytes} bytes of scratch from {address:#x} on, outside of what the lane has",
    5: "uses a buffer resource that is not supported: strided, swizzled or out of range",
    6: "has executed {bytes} instructions in this workgroup without ending",
    7: "does an atomic operation on {address:#x}, which is not aligned to {bytes} bytes",
    8: "runs past the last instruction",
}
_HINTS = {
    1: "look for a missing mask, or a stride that does not belong to this tensor",
    2: "look for a missing mask, a stride that does not belong to this tensor, or a buffer that is read-only",
    6: "raise the limit when the kernel really needs that long",
}


def explain(fault: Any, line: Line, kernel: str, memory: Memory, source: SourceMap | None) -> ExecutionError:
    """The error for a fault report; names instruction, workgroup, wave, lane, the nearest buffer, and the source line if known."""
    code = int(fault.code)
    what = _WHAT[code].format(bytes=int(fault.bytes), address=int(fault.address))
    where = f"workgroup ({', '.join(str(int(n)) for n in fault.group)}), wave {fault.wave}, lane {fault.lane}"
    cause = f"{where}, {placed(line, source)}"
    if code in {1, 2}:
        cause += f"; {_near(int(fault.address), memory)}"
    return ExecutionError(f"{kernel} {what}", cause=cause, hint=_HINTS.get(code, ""))


def placed(line: Line, source: SourceMap | None) -> str:
    """An instruction's place in text and machine code, and its source line if known."""
    known = source.at(line.address) if source else None
    return f"{line.place} (byte {line.address:#x}{', ' + known if known else ''})"


def _near(address: int, memory: Memory) -> str:
    spans = memory.spans()
    if not spans:
        return "the kernel was given no memory"
    name, low, high, writable = min(spans, key=lambda s: min(abs(address - s[1]), abs(address - s[2])))
    kind = "" if writable else ", read-only"
    return f"the address is {address - low:+d} bytes from the start of {name}, which has {high - low} bytes{kind}"
