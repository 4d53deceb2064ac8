"""Hazards in an image's code that its execution in order cannot show (`manifests/hazards.yaml`)."""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest

from aotforge.base.hazards import HazardName, Hazards
from vgpu.emulator import effects as waits
from vgpu.emulator.decoded import Line, Listing, Operand
from vgpu.emulator.isa import INSTRUCTIONS
from vgpu.emulator.targets import EmulatedTarget

_LISTED = 3
_ENDS = ("s_endpgm", "s_branch", "s_setpc_b64")
_BARRIERS = ("s_barrier", "s_barrier_signal")
_TRANSPOSES = re.compile(r"ds_(read|load)_(b\d+_)?tr_?")
_STORED: frozenset[int] = frozenset([-1])
"""State of a program point behind a store; others are the VGPRs that DPP or permute wrote last."""
State = frozenset[int]
Finder = Callable[[Listing, EmulatedTarget], Iterator[Line]]


def find_hazards(listing: Listing, target: EmulatedTarget, hazards: Hazards) -> list[str]:
    """A text for each hazard of the arch that the code has, with its first places. Raises DecodeError."""
    found = []
    for name, hazard in hazards.of(target.arch).items():
        if hazard.found == "results":
            continue
        if lines := [line.location for line in _FINDERS[name](listing, target)]:
            more = f"; and {len(lines) - _LISTED} more places" if len(lines) > _LISTED else ""
            places = "; ".join(lines[:_LISTED])
            avoid = f"; {hazard.avoid}" if hazard.avoid else ""
            found.append(f"hazard {name}: {hazard.fault} ({hazard.source}): {places}{more}{avoid}")
    return found


def _same_parity(listing: Listing, _target: EmulatedTarget) -> Iterator[Line]:
    for line in listing.lines:
        if line.partner is None:
            continue
        pairs = zip_longest(_sources(line), _sources(line.partner))
        if any(
            one and other and {one.space, other.space} == {"vector"} and one.index % 2 == other.index % 2
            for one, other in pairs
        ):
            yield line


def _after_dpp(listing: Listing, _target: EmulatedTarget) -> Iterator[Line]:
    states = _states(listing, _cross_lane)
    for line, state in zip(listing.lines, states, strict=True):
        if line.partner and state & (_reads(line) | _reads(line.partner)):
            yield line


def _store_at_barrier(listing: Listing, target: EmulatedTarget) -> Iterator[Line]:
    def stores(line: Line) -> bool:
        # scratch is a lane's own: no other wave reads it
        counted = waits.counted(line.name, target, returns=bool(line.modifiers.keys() & {"glc", "th"}))
        return counted == waits.STORES and not line.name.startswith("scratch_")

    return _outstanding_at_barrier(listing, target, waits.STORES, stores)


def _shared_store_at_barrier(listing: Listing, target: EmulatedTarget) -> Iterator[Line]:
    def stores(line: Line) -> bool:
        return line.name.startswith(("ds_store", "ds_write"))

    return _outstanding_at_barrier(listing, target, waits.LOCAL, stores)


def _outstanding_at_barrier(
    listing: Listing, target: EmulatedTarget, counter: int, stores: Callable[[Line], bool]
) -> Iterator[Line]:
    def outstanding(line: Line, state: State) -> State:
        if waits.waited(line, target).get(counter, 1) == 0:
            return frozenset()
        return _STORED if stores(line) else state

    for line, state in zip(listing.lines, _states(listing, outstanding), strict=True):
        if line.name in _BARRIERS and state:
            yield line


def _truncating_dot(listing: Listing, _target: EmulatedTarget) -> Iterator[Line]:
    return (line for line in listing.lines if line.name == "v_dot2_bf16_bf16")


def _buffer_atomic(listing: Listing, _target: EmulatedTarget) -> Iterator[Line]:
    return (line for line in listing.lines if line.name.startswith("buffer_atomic_"))


def _transposed_with_partial_exec(listing: Listing, _target: EmulatedTarget) -> Iterator[Line]:
    states = _states(listing, _narrowed)
    for line, state in zip(listing.lines, states, strict=True):
        if _TRANSPOSES.match(line.name) and state:
            yield line


def _narrowed(line: Line, state: State) -> State:
    """Registers that hold an EXEC with more lanes than the one that is set; -1 for one that none holds."""
    if "saveexec" in line.name:
        return state | {line.operands[0].index}
    if line.name.startswith("v_cmpx"):
        return state | _STORED
    if not line.operands or line.operands[0].text not in {"exec", "exec_lo"}:
        return state
    sources = {one.index for one in line.operands[1:] if one.space == "scalar"}
    if line.name.startswith("s_mov") and not sources:
        return frozenset()
    restores = line.name.startswith(("s_mov", "s_or_"))
    return state - sources if restores else state | _STORED


_FINDERS: Mapping[HazardName, Finder] = {
    "dual-issue-parity": _same_parity,
    "dual-issue-after-dpp": _after_dpp,
    "store-before-barrier": _store_at_barrier,
    "shared-store-before-barrier": _shared_store_at_barrier,
    "bf16-dot-truncates": _truncating_dot,
    "buffer-atomic-dropped": _buffer_atomic,
    "transpose-with-partial-exec": _transposed_with_partial_exec,
}


def _states(listing: Listing, transfer: Callable[[Line, State], State]) -> list[State]:
    """The state before each instruction, joined over all paths from the first one."""
    states: list[State | None] = [None] * len(listing.lines)
    work: list[tuple[int, State]] = [(0, frozenset())]
    work += [(start, frozenset()) for name, start in listing.labels.items() if not name.startswith(".L")]
    while work:
        at, state = work.pop()
        while at < len(states):
            before = states[at]
            merged = state if before is None else before | state
            if merged == before:
                break
            states[at] = merged
            line = listing.lines[at]
            state = transfer(line, merged)
            work += [(listing.labels[o.text], state) for o in line.operands if o.space == "label"]
            if line.name in _ENDS:
                break
            at += 1
    return [state or frozenset() for state in states]


def _cross_lane(line: Line, state: State) -> State:
    for half in (line, line.partner):
        if half is not None:
            written = _writes(half)
            crosses = half.encoding.endswith("dpp") or half.name.startswith("v_permlane")
            state = state | written if crosses else state - written
    return state


def _writes(line: Line) -> State:
    """VGPRs that an instruction certainly writes: the first operand of vector arithmetic and of loads."""
    loads = "_load_" in line.name or line.name.startswith("ds_read")
    if not line.operands or not (line.name.startswith("v_") or loads):
        return frozenset()
    return _registers(line.operands[0])


def _reads(line: Line) -> State:
    """VGPRs that one half of a pair reads."""
    own = line.operands[:1] if INSTRUCTIONS[line.name].reads_d else ()
    return frozenset[int]().union(*(_registers(one) for one in (*own, *_sources(line))))


def _sources(line: Line) -> tuple[Operand, ...]:
    """The first and the second source in order; `fmamk` has its constant between them."""
    sources = line.operands[1:]
    return (sources[0], sources[2]) if line.name.startswith("v_fmamk") else sources


def _registers(operand: Operand) -> State:
    if operand.space != "vector":
        return frozenset()
    return frozenset(range(operand.index, operand.index + operand.words))
