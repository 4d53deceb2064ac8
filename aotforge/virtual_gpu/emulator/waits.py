"""Wait counters: what each instruction adds to, and what `s_waitcnt` and its relatives wait for.

Sources: the guides' chapters on data dependency resolution; LLVM's "User Guide for AMDGPU Backend" for the encodings of the immediates. gfx9 has
one counter for vector memory (vmcnt) and one for LDS and scalar loads (lgkmcnt); gfx10 and gfx11 count stores apart (vscnt); gfx12 has
loadcnt, storecnt, dscnt and kmcnt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from aotforge.errors import DecodeError
from aotforge.virtual_gpu.emulator.decoded import Line
from aotforge.virtual_gpu.emulator.targets import EmulatedTarget

LOADS, STORES, LOCAL, SCALAR = 1, 2, 3, 4
"""Kinds of counted operations: vector loads, vector stores, LDS, scalar loads. 0: not counted."""
NO_WAIT = 255

_SYMBOL = re.compile(r"(\w+)\((\d+|0x[0-9a-f]+)\)")
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


def stores_apart(target: EmulatedTarget) -> bool:
    """Whether stores have a counter of their own (gfx10 and later)."""
    return target.generation >= 10


def counted(name: str, target: EmulatedTarget, *, returns: bool) -> int:
    """The kind of operation that an instruction adds to a counter. `returns`: an atomic that gives the old value back."""
    stores = STORES if stores_apart(target) else LOADS
    if name.startswith("ds_"):
        return LOCAL
    if name.startswith(("s_load_", "s_buffer_load_")):
        return SCALAR
    if name in _CACHES:
        return LOADS if name == "global_inv" else stores
    if not name.startswith(("global_", "buffer_", "scratch_")):
        return 0
    if "_load_" in name or ("_atomic_" in name and returns):
        return LOADS
    return stores if "_store_" in name or "_atomic_" in name else 0


def waited(line: Line, target: EmulatedTarget) -> Mapping[int, int]:
    """How many operations of each kind may be outstanding after a wait; empty for other instructions.

    Raises DecodeError for a wait whose operands are not understood.
    """
    tail = line.text[len(line.text.split()[0]) :].strip()
    if line.name == "s_wait_idle":
        return dict.fromkeys((LOADS, STORES, LOCAL, SCALAR), 0)
    if line.name == "s_waitcnt":
        return _by_name(line, tail) if "(" in tail else _by_bits(line, _number(line, tail), target)
    if line.name == "s_waitcnt_vscnt":
        return {STORES: _number(line, tail.split(",")[-1].strip())}
    if line.name in _WAITS_GFX12:
        value, kinds = _number(line, tail), _WAITS_GFX12[line.name]
        return {kinds[0]: value} if len(kinds) == 1 else {kinds[0]: value >> 8 & 63, kinds[1]: value & 63}
    return {}


def _by_name(line: Line, tail: str) -> dict[int, int]:
    found: dict[int, int] = {}
    rest = _SYMBOL.sub("", tail).replace("&", " ").replace(",", " ").strip()
    for name, number in _SYMBOL.findall(tail):
        if name == "vmcnt":
            found[LOADS] = int(number, 0)
        elif name == "lgkmcnt":
            found[LOCAL] = found[SCALAR] = int(number, 0)
        elif name != "expcnt":
            rest = name
    if rest:
        raise DecodeError(f"{line.place}: unknown wait {rest!r}")
    return found


def _by_bits(line: Line, value: int, target: EmulatedTarget) -> dict[int, int]:
    if target.generation == 9:
        loads, local, most = (value & 15) | (value >> 14 & 3) << 4, value >> 8 & 15, 15
    elif target.generation == 11:
        loads, local, most = value >> 10 & 63, value >> 4 & 63, 63
    else:
        raise DecodeError(f"{line.place}: the encoding of s_waitcnt on {target.arch} is not known")
    found = {} if loads == 63 else {LOADS: loads}
    return found if local == most else {**found, LOCAL: local, SCALAR: local}


def _number(line: Line, text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise DecodeError(f"{line.place}: the wait's operand is no number") from None
