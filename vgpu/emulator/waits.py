"""Wait counters: the counter of each instruction, and what `s_waitcnt` and similar ones wait for.

Sources: the guides' chapters on data dependency resolution; LLVM's "User Guide for AMDGPU Backend" for the
immediates. gfx9 has one counter for vector memory (vmcnt) and one for LDS and scalar loads (lgkmcnt); gfx10
and gfx11 count stores separately (vscnt); gfx12 has loadcnt, storecnt, dscnt and kmcnt.
"""

import re
from collections.abc import Mapping

from vgpu.emulator.decoded import Line
from vgpu.emulator.operands import integer
from vgpu.emulator.targets import EmulatedTarget
from vgpu.errors import DecodeError

LOADS, STORES, LOCAL, SCALAR = 1, 2, 3, 4
"""Kinds of counted operations: vector loads, vector stores, LDS, scalar loads. 0: not counted."""
NO_WAIT = 255

_COUNTER = re.compile(r"(\w+)\(([^()]*)\)")
_COUNTERS: Mapping[str, tuple[int, ...]] = {"vmcnt": (LOADS,), "lgkmcnt": (LOCAL, SCALAR), "expcnt": ()}
_WAITS_GFX12 = {
    "s_wait_loadcnt": (LOADS,),
    "s_wait_storecnt": (STORES,),
    "s_wait_dscnt": (LOCAL,),
    "s_wait_kmcnt": (SCALAR,),
    "s_wait_loadcnt_dscnt": (LOADS, LOCAL),
    "s_wait_storecnt_dscnt": (STORES, LOCAL),
}
_CACHES = {"buffer_wbl2", "global_wb", "global_wbinv", "global_inv"}
"""Counted as stores, gfx12's `global_inv` as a load that writes no register (LLVM's SIInsertWaitcnts)."""


def counted(name: str, target: EmulatedTarget, *, returns: bool) -> int:
    """The kind of operation that is counted. `returns`: an atomic that returns the old value."""
    stores = STORES if target.generation >= 10 else LOADS
    if name.startswith("ds_"):
        return LOCAL
    if name.startswith(("s_load_", "s_buffer_load_")):
        return SCALAR
    if name in _CACHES:
        return LOADS if name == "global_inv" else stores
    if not name.startswith(("global_", "buffer_", "scratch_", "flat_")):
        return 0
    if "_load_" in name or ("_atomic_" in name and returns):
        return LOADS
    return stores if "_store_" in name or "_atomic_" in name else 0


def waited(line: Line, target: EmulatedTarget) -> Mapping[int, int]:
    """How many operations of each kind may be outstanding after a wait; empty for others. Raises
    DecodeError."""
    tail = line.text[len(line.text.split()[0]) :].strip()
    if line.name == "s_wait_idle":
        return dict.fromkeys((LOADS, STORES, LOCAL, SCALAR), 0)
    if line.name == "s_waitcnt":
        return _by_name(line, tail) if "(" in tail else _by_bits(line, _number(line, tail), target)
    if line.name == "s_waitcnt_vscnt":
        return {STORES: _number(line, tail.split(",")[-1].strip())}
    kinds, value = _WAITS_GFX12.get(line.name, ()), 0
    if kinds:
        value = _number(line, tail)
    # of two counters the first has the higher bits
    if len(kinds) == 2:
        return {kinds[0]: value >> 8 & 63, kinds[1]: value & 63}
    return dict.fromkeys(kinds, value)


def _by_name(line: Line, tail: str) -> dict[int, int]:
    found = _COUNTER.findall(tail)
    rest = _COUNTER.sub("", tail).replace("&", " ").replace(",", " ").split()
    if unknown := [*rest, *(name for name, _ in found if name not in _COUNTERS)]:
        raise DecodeError(f"{line.location}: unknown wait {unknown[0]!r}")
    return {kind: _number(line, number) for name, number in found for kind in _COUNTERS[name]}


def _by_bits(line: Line, value: int, target: EmulatedTarget) -> dict[int, int]:
    if target.generation == 9:
        loads, local, most = (value & 15) | (value >> 14 & 3) << 4, value >> 8 & 15, 15
    elif target.generation == 10:
        loads, local, most = (value & 15) | (value >> 14 & 3) << 4, value >> 8 & 63, 63
    elif target.generation == 11:
        loads, local, most = value >> 10 & 63, value >> 4 & 63, 63
    else:
        raise DecodeError(f"{line.location}: the encoding of s_waitcnt on {target.arch} is not known")
    found = {} if loads == 63 else {LOADS: loads}
    return found if local == most else {**found, LOCAL: local, SCALAR: local}


def _number(line: Line, text: str) -> int:
    try:
        return integer(text)
    except DecodeError as error:
        raise DecodeError(f"{line.location}: the wait's operand: {error.what}") from None
