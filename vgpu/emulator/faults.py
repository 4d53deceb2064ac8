"""Fault reports of the interpreter as an ExecutionError."""

from collections.abc import Mapping, Sequence
from typing import Any

from vgpu.emulator import effects, native
from vgpu.emulator.arguments import absent_argument
from vgpu.emulator.decoded import Line, SourceMap
from vgpu.errors import ExecutionError, UnsupportedError
from vgpu.memory import BufferSpan

JUMP = 8
PENDING, RACE, BARRIER, UNSET_STORE, UNSET_ADDRESS, UNSET_BRANCH, UNSET_EXEC, ASSERT, TRAP, HOST_CALL = range(
    11, 21
)
DESCRIPTOR, TRANSPOSED, GLOBAL_RACE, STALE, RACES_FULL = range(21, 26)
_WHAT = {
    1: "reads {bytes} bytes of global memory outside its buffers",
    2: "writes {bytes} bytes of global memory outside its buffers",
    3: "touches {bytes} bytes of LDS from {address:#x} on, outside of what the workgroup has",
    4: "touches {bytes} bytes of scratch from {address:#x} on, outside of what the lane has",
    5: "uses a buffer resource that is not supported: strided, swizzled or out of range",
    6: "has executed {bytes} instructions in this workgroup without ending",
    7: "does an atomic operation on {address:#x}, which is not aligned to {bytes} bytes",
    8: "runs past the last instruction",
    RACE: "has a data race in LDS: two waves touch the {bytes} bytes from {address:#x} on without a barrier "
    "between them",
    UNSET_STORE: "stores uninitialised data to {space} at {address:#x}",
    UNSET_ADDRESS: "uses uninitialised data as an address",
    UNSET_BRANCH: "branches on uninitialised data",
    TRAP: "executes s_trap {address}",
    UNSET_EXEC: "lets uninitialised data decide which lanes are on",
    GLOBAL_RACE: "has a data race in global memory: two waves touch the {bytes} bytes at {address:#x}, and "
    "nothing orders the two",
    STALE: "may read an old value of the {bytes} bytes at {address:#x}: it is ordered behind another wave's "
    "store, but the cache is not invalidated in between",
    RACES_FULL: "does atomics on more addresses than the check of races can follow",
    TRANSPOSED: "loads a transposed tile from LDS while some lanes are off",
    DESCRIPTOR: "uses a buffer resource whose fourth word, {bytes:#010x}, is not valid on this arch",
}
_HINTS = {
    1: "look for a missing mask, or a stride that does not belong to this tensor",
    2: "look for a missing mask, a stride that does not belong to this tensor, or a buffer that is read-only",
    3: "check that the launch has the dynamic LDS of Triton's metadata.shared (`vgpu run --lds`), then the "
    "index",
    6: "raise the limit when the kernel really needs that long",
    GLOBAL_RACE: "order them by a barrier within a workgroup, else by atomics that release and acquire, with "
    "their waits",
    STALE: "the atomic needs acquire semantics for the device (buffer_gl1_inv and buffer_gl0_inv, buffer_inv "
    "sc1, global_inv scope:SCOPE_DEV), the barrier a fence of global memory",
    RACES_FULL: "look for races with a smaller grid",
    TRANSPOSED: "EXEC has to be all ones there (gfx950: ds_read_*_tr_*): move the load out of the branch",
    DESCRIPTOR: "its bits 12 to 31 differ between generations: see docs/virtual-gpu.md, buffer resources",
    PENDING: "a wait before this instruction is missing, or allows too many operations to be outstanding",
    RACE: "a barrier is missing between the two, or a wait before it: LLVM drops waits of loops that are "
    "pipelined, which num_stages=1 avoids",
    BARRIER: "every wave of a workgroup has to reach the same barriers: look for one under a condition that "
    "differs between waves",
}
_UNSET_HINT = "the first instruction that read it shows what was never written: a register, LDS, or scratch"
_BARRIERS = {
    0: "waits at a barrier while wave {wave} waits at another one",
    1: "waits at a barrier that wave {wave} never reaches: it has ended",
    2: "waits at a barrier that it has not signalled",
    3: "signals a barrier twice without waiting",
}
_PENDING_LDS = 7
_SPACES = ("global memory", "LDS", "scratch")


def explain(
    fault: Any,
    lines: Sequence[Line],
    buffers: Sequence[BufferSpan],
    source: SourceMap | None,
    *,
    kernel: str,
    absent: Mapping[int, str],
    message: str = "",
    grid: tuple[int, int, int] = (1, 1, 1),
) -> ExecutionError | UnsupportedError:
    """The error for a fault report: instruction, lane, the other party, the nearest of `buffers`. `absent`:
    hidden arguments without a value by their offset; `message`: the last printed text; `grid`: its axes."""
    code = int(fault.code)
    where = f"workgroup ({', '.join(str(int(n)) for n in fault.group)}), wave {fault.wave}, lane {fault.lane}"
    cause = f"{where}, {locate(_line(lines, fault.instruction), source)}"
    if code in {1, 2} and (argument := absent_argument(int(fault.address), absent)):
        return UnsupportedError(
            f"{kernel} uses {argument}, which the virtual GPU does not provide", cause=cause
        )
    if code == HOST_CALL:
        what = (
            f"{kernel} calls service {int(fault.address)} of the host, which the virtual GPU does not provide"
        )
        return UnsupportedError(what, cause=cause)
    if code == ASSERT:
        message = message.strip().replace(", in unknown at ", ", at ")  # without line info, no function
        return ExecutionError(f"{kernel}: {message or 'device assertion failed'}", cause=cause)
    if code in {1, 2, GLOBAL_RACE, STALE} or (code == UNSET_STORE and not fault.detail):
        cause += f"; {_near(int(fault.address), buffers)}"
    if code in {GLOBAL_RACE, STALE}:
        cause += (
            f"; the other one is {_other_party(fault, grid)}, {locate(_line(lines, fault.other), source)}"
        )
    other = locate(_line(lines, fault.other), source) if PENDING <= code < ASSERT else ""
    hint = _UNSET_HINT if UNSET_STORE <= code < ASSERT else _HINTS.get(code, "")
    return ExecutionError(f"{kernel} {_what(fault)}", cause=cause + _other(fault, other), hint=hint)


def _what(fault: Any) -> str:
    code = int(fault.code)
    if code == PENDING:
        verb = "reads" if fault.bytes else "overwrites"
        lds = int(fault.detail) == _PENDING_LDS
        place = f"LDS at {int(fault.address):#x}" if lds else register_name(int(fault.address))
        return f"{verb} {place} before the load into it has been waited for"
    if code == BARRIER:
        return _BARRIERS[int(fault.detail)].format(wave=int(fault.other_wave))
    if code == JUMP and fault.bytes:
        return f"jumps to {int(fault.address):#x}, where no instruction begins"
    space = _SPACES[int(fault.detail) % 3]
    return _WHAT[code].format(bytes=int(fault.bytes), address=int(fault.address), space=space)


def _other_party(fault: Any, grid: tuple[int, int, int]) -> str:
    number = int(fault.detail)
    group = (number % grid[0], number // grid[0] % grid[1], number // grid[0] // grid[1])
    return f"workgroup {group}, wave {fault.other_wave}"


def _other(fault: Any, location: str) -> str:
    code = int(fault.code)
    if code == PENDING:
        return f"; loaded by {location}"
    if code == RACE:
        carried = ", which had not been waited for at the barrier" if fault.detail else ""
        return f"; the other one is wave {fault.other_wave}, {location}{carried}"
    if code == BARRIER:
        return f"; wave {fault.other_wave} is at {location}"
    if UNSET_STORE <= code < ASSERT:
        return (
            f"; first read by {location}" if fault.other != fault.instruction else "; it is read here first"
        )
    return ""


def register_name(number: int) -> str:
    """The assembler's name of a register in the numbering of effects.py."""
    names = {native.VCC_LO: "vcc_lo", native.VCC_LO + 1: "vcc_hi", 125: "m0", 126: "exec_lo", 127: "exec_hi"}
    if number >= effects.VECTOR0:
        file, index = divmod(number - effects.VECTOR0, native.AGPR0)
        return f"{'va'[file]}{index}"
    return names.get(number, f"ttmp{number - 108}" if 108 <= number < 124 else f"s{number}")


def locate(line: Line, source: SourceMap | None) -> str:
    """An instruction's location in text and machine code, and its source line if known."""
    known = source.at(line.address) if source else None
    return f"{line.location} (byte {line.address:#x}{', ' + known if known else ''})"


def _line(lines: Sequence[Line], index: int) -> Line:
    return lines[min(int(index), len(lines) - 1)]


def _near(address: int, buffers: Sequence[BufferSpan]) -> str:
    if not buffers:
        return "the kernel was given no memory"
    name, low, high, writable = min(buffers, key=lambda s: min(abs(address - s[1]), abs(address - s[2])))
    kind = "" if writable else ", read-only"
    size = f"{high - low} bytes{kind}"
    return f"the address is {address - low:+d} bytes from the start of {name}, which has {size}"
