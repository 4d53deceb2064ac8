"""Effects of instructions on registers, memory and wait counters, for the checking interpreter.

Registers are numbered in one file: scalars from 0 (VCC 106, EXEC 126), vectors from 128 (AGPRs from 384), SCC
last. Waits: the guides' chapters on data dependency resolution, LLVM's "User Guide for AMDGPU Backend" for
the immediates. gfx9 has one counter for vector memory (vmcnt) and one for LDS and scalar loads (lgkmcnt);
gfx10 and gfx11 count stores separately (vscnt); gfx12 has loadcnt, storecnt, dscnt and kmcnt.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache

from vgpu.emulator import native
from vgpu.emulator.decoded import Line, Operand
from vgpu.emulator.isa import INSTRUCTIONS
from vgpu.emulator.isa.entry import Entry
from vgpu.emulator.operands import integer
from vgpu.emulator.targets import EmulatedTarget
from vgpu.errors import DecodeError

LOADS, STORES, LOCAL, SCALAR = 1, 2, 3, 4
"""Kinds of counted operations: vector loads, vector stores, LDS, scalar loads. 0: not counted."""
NO_WAIT = 255

_COUNTER = re.compile(r"(\w+)\(([^()]*)\)")
_COUNTERS: Mapping[str, tuple[int, ...]] = {"vmcnt": (LOADS,), "lgkmcnt": (LOCAL, SCALAR), "expcnt": ()}
_WAITS_GFX10 = {
    "s_waitcnt_vscnt": (STORES,),
    "s_waitcnt_vmcnt": (LOADS,),
    "s_waitcnt_lgkmcnt": (LOCAL, SCALAR),
}
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
    if not line.name.startswith("s_wait"):
        return {}
    tail = line.text[len(line.text.split()[0]) :].strip()
    if line.name == "s_wait_idle":
        return dict.fromkeys((LOADS, STORES, LOCAL, SCALAR), 0)
    if line.name == "s_waitcnt":
        return _by_name(line, tail) if "(" in tail else _by_bits(line, _number(line, tail), target)
    if counter := _WAITS_GFX10.get(line.name):
        return dict.fromkeys(counter, _number(line, tail.split(",")[-1].strip()))
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


VECTOR0 = native.SCALARS
SCC = VECTOR0 + native.VECTORS
_SPACE = {number: name for name, number in native.SPACES.items() if name != "label"}
_NULL = 124
_WRITES_SCC = re.compile(r"\bSCC\s*=(?!=)")
_READS_SCC = re.compile(r"\bSCC\b(?!\s*=(?!=))")
_SWAPS = {"v_swap_b32", "v_swap_b16", "v_permlane16_swap_b32", "v_permlane32_swap_b32"}
_PARTIAL = {"v_writelane_b32", "v_permlane16_b32", "v_permlanex16_b32", *_SWAPS}
_M0 = 125
_MEMORY, _TO_LDS = 1, 2
_NARROW_STORE = re.compile(r"_(store|write)_(b16|b8|short|byte|d16_hi)")
_BARRIER_ROLES = {"s_barrier": 1, "s_barrier_signal": 2, "s_barrier_wait": 3}
Spans = list[tuple[int, int]]


def effects_of(bound: native.Instruction, line: Line, target: EmulatedTarget) -> native.Effects:
    """Effects of a bound instruction. Raises DecodeError for a wait with unknown operands."""
    entry = INSTRUCTIONS[line.name]
    returning = bool(bound.flags) and "atomic" in line.name
    effects = native.Effects(kind=counted(line.name, target, returns=returning))
    effects.in_order = effects.kind == LOCAL or (effects.kind == LOADS and target.generation < 12)
    effects.wait[:] = [NO_WAIT] * len(effects.wait)
    for kind, most in waited(line, target).items():
        effects.wait[kind] = min(most, NO_WAIT)
        effects.waits = 1
    reads, writes = _registers(bound, line, entry)
    effects.scalar = entry.form == "scalar" or line.name.startswith("s_")
    selected = bound.write or bound.dpp or bound.dst_sel
    effects.partial = bool(selected or "_d16" in line.name or line.name in _PARTIAL)
    _set_memory(effects, bound, line)
    effects.coherence = _coherence(line, target)
    effects.role = _BARRIER_ROLES.get(line.name, 0)
    own = line.operands[:1] if bound.d.words else ()
    read = _halves([*_sources(line, entry, len(own)), *(own if entry.reads_d else ())], target)
    written = _halves(own, target)
    if written and "_load_" in line.name and "d16" in line.name:
        written = dict.fromkeys(written, 2 if "d16_hi" in line.name else 1)
    _set_spans(effects, reads, read, writes, written)
    return effects


def _registers(bound: native.Instruction, line: Line, entry: Entry) -> tuple[Spans, Spans]:
    reads = [span for source in bound.s for span in _operand(source)]
    writes = _operand(bound.d) + _operand(bound.sd)
    if entry.reads_d or line.name in _SWAPS:
        reads += _operand(bound.d)
    if line.name in _SWAPS:
        writes += _operand(bound.s[0])
    if "returns_to_data" in entry.rules and bound.flags:
        size = 2 if "cmpswap" in line.name else 1  # the compared value is not overwritten
        writes += [(first, words // size) for first, words in _operand(bound.s[1])]
    if line.name.startswith("global_load_lds_"):
        reads.append((_M0, 1))
    if "VCC_LO" in entry.code:
        reads.append((native.VCC_LO, 2))
    read_scc, written_scc = _scc_uses(entry.code)
    writes += [(SCC, 1)] * written_scc
    reads += [(SCC, 1)] * read_scc
    return reads, writes


@cache
def _scc_uses(code: str) -> tuple[bool, bool]:
    """Whether the code of an instruction reads SCC, and whether it writes it."""
    return bool(_READS_SCC.search(code)), bool(_WRITES_SCC.search(code))


def _operand(operand: native.Operand) -> Spans:
    space = _SPACE[operand.space]
    if space == "vector":
        return [(VECTOR0 + operand.index, operand.words)]
    if space == "scalar" and operand.index != _NULL:
        return [(operand.index, operand.words)]
    if space == "status":
        return {0: [(SCC, 1)], 1: [(native.VCC_LO, 2)]}.get(operand.index, [])
    return []


def _set_memory(effects: native.Effects, bound: native.Instruction, line: Line) -> None:
    """Data of a store or atomic, and which half of a register it uses; permutes touch no memory."""
    name = line.name
    if not effects.kind or name.startswith(("ds_permute", "ds_bpermute", "ds_swizzle")):
        return
    effects.memory = _TO_LDS if name.startswith("global_load_lds_") else _MEMORY
    effects.high = "d16_hi" in name
    moves = re.match(r"ds_(read|write|load|store)", name)
    effects.atomic = "atomic" in name or (name.startswith("ds_") and not moves)
    if effects.atomic or re.search(r"_(store|write)", name):
        data = bound.s[2 if name.startswith("ds_cmpst_") else 1]  # before it: what memory is compared with
        effects.data, effects.data_words = VECTOR0 + data.index, data.words


_COHERENT, _GROUP, _DEVICE, _GL1 = 1, 2, 4, 8
"""Of global_races.h: an access past the CU's caches; invalidation for the workgroup, the device, of GL1."""
_INVALIDATIONS = {
    "buffer_wbinvl1": _GROUP | _DEVICE,
    "buffer_wbinvl1_vol": _GROUP | _DEVICE,
    "buffer_gl0_inv": _GROUP,
    "buffer_gl1_inv": _GL1,
}


def _coherence(line: Line, target: EmulatedTarget) -> int:
    """LLVM's "User Guide for AMDGPU Backend", memory model: bits of loads and stores that are atomic for the
    device, and what the invalidations after them reach."""
    if not line.name.startswith(("global_", "buffer_", "flat_")):
        return 0
    words = set(line.text.split())
    wide = bool(words & {"sc1", "scope:SCOPE_DEV", "scope:SCOPE_SYS"})
    if line.name in {"buffer_inv", "global_inv"}:
        return (_GROUP | _DEVICE) if wide else _GROUP if words & {"sc0", "scope:SCOPE_SE"} else 0
    loads = "_load_" in line.name and "glc" in words and target.generation < 12
    return _INVALIDATIONS.get(line.name, _COHERENT * (wide or loads))


def _sources(line: Line, entry: Entry, first: int) -> list[Operand]:
    """Operands that are read. A store of 8 or 16 bits reads only one half of its data register."""
    found = list(line.operands[first:])
    if _NARROW_STORE.search(line.name):
        data = [slot.name for slot in entry.slots].index("S1")
        found[data] = replace(found[data], half=int("d16_hi" in line.name))
    return found


def _halves(operands: Iterable[Operand], target: EmulatedTarget) -> dict[int, int]:
    """Halves of registers that operands mean; not on gfx9, whose 16-bit loads write all of one with ECC."""
    found: dict[int, int] = {}
    for operand in operands if target.keeps_high_half else ():
        if operand.space == "vector":
            register = VECTOR0 + operand.index
            found[register] = found.get(register, 0) | (3 if operand.half is None else 1 << operand.half)
    return found


def _set_spans(
    effects: native.Effects, reads: Spans, read: dict[int, int], writes: Spans, written: dict[int, int]
) -> None:
    if len(reads) + len(writes) > len(effects.spans):
        raise DecodeError("the instruction has more operands than the checks support")
    effects.reads, effects.writes = len(reads), len(writes)
    parts = [(span, read) for span in reads] + [(span, written) for span in writes]
    for span, ((first, count), halves) in zip(effects.spans, parts, strict=False):
        span.first, span.count = first, count
        span.halves = halves.get(first, 3) if count == 1 else 3
