"""A second model of wait counters, in Python and from the assembly text alone: what the emulator's checks are
held against.

It follows a trace as lists of outstanding operations, where the emulator numbers them. Counters by
generation:

- gfx9: vmcnt counts vector memory; lgkmcnt counts LDS, and scalar loads, which come back in any order. -
gfx11: the same, but vscnt counts the stores of vector memory. - gfx12: loadcnt, storecnt, dscnt and kmcnt.
Loads complete in order for their counter, but write registers in any order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from vgpu.emulator.decoded import Line, Operand
from vgpu.emulator.program import Step

Register = tuple[str, int, int]
"""Space, number, half."""
_NAMED = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")
_SPLIT = re.compile(r"s_wait_(load|store|ds|km)cnt(?:_(ds)cnt)?")
_IMPLIED_VCC = re.compile(r"s_cbranch_vcc|v_div_fmas")
_LOCAL = re.compile(r"ds_(read|write|load|store|add)")
_NARROW_STORE = re.compile(r"_(store|write)_(b16|b8|short|byte|d16_hi)")
_VECTOR_MEMORY = ("global_", "buffer_", "scratch_", "flat_")
_CACHES = re.compile(r"buffer_(wb|inv|gl\d_inv)|global_(inv|wb)")


def allowed(wait: Line) -> dict[str, int]:
    """Operations that may be outstanding after a wait, by counter; empty for other instructions."""
    if wait.name == "s_waitcnt":
        return {name: int(number) for name, number in _NAMED.findall(wait.text)}
    found = _SPLIT.fullmatch(wait.name)
    if found is None and wait.name != "s_waitcnt_vscnt":
        return {}
    number = int(wait.text.split()[-1], 0)
    if found is None:
        return {"vscnt": number}
    if found[2]:  # the first counter has the higher bits
        return {f"{found[1]}cnt": number >> 8 & 63, "dscnt": number & 63}
    return {f"{found[1]}cnt": number}


@dataclass(frozen=True, kw_only=True)
class _Meaning:
    """What the model reads from an instruction's text."""

    waits: Mapping[str, int]
    counter: str | None
    loads: frozenset[Register]
    touched: frozenset[Register]
    scalar: bool
    at_barrier: bool
    in_lds: bool

    @property
    def in_order(self) -> bool:
        """Its results return in order; gfx12 has no order between the registers that vector loads write."""
        return self.counter is not None and self.counter != "loadcnt" and not self.scalar


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation that has been issued."""

    meaning: _Meaning
    line: Line


@dataclass(kw_only=True)
class Replay:
    """Feed it every step of a launch on one thread. `violations`: an instruction that touches what is still
    outstanding, or a barrier that a wave reaches with LDS operations outstanding. `generation` of the arch's
    instruction set."""

    generation: int = 9
    violations: list[str] = field(default_factory=list)
    _outstanding: dict[int, list[Operation]] = field(default_factory=dict)
    _groups: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _known: dict[int, tuple[Line, _Meaning]] = field(default_factory=dict)

    def step(self, step: Step) -> None:
        """One executed instruction."""
        wave, line, group = int(step.wave.number), step.line, tuple(step.wave.group)
        if self._groups.get(wave) != group:
            self._groups[wave], self._outstanding[wave] = group, []
        operations = self._outstanding[wave]
        if id(line) not in self._known:
            self._known[id(line)] = line, self._meaning(line)
        one = self._known[id(line)][1]
        if one.waits:
            self._outstanding[wave] = _after(operations, one.waits)
            return
        for operation in operations:
            other = operation.meaning
            in_order = one.in_order and one.counter == other.counter and not other.scalar
            if other.loads & (one.touched - one.loads if in_order else one.touched):
                self.violations.append(f"{line.location} after {operation.line.location}")
            if one.at_barrier and other.in_lds:
                self.violations.append(f"{line.location} with {operation.line.location}")
        if one.counter:
            operations.append(Operation(meaning=one, line=line))

    def _meaning(self, line: Line) -> _Meaning:
        return _Meaning(
            waits=allowed(line),
            counter=_counter(line, self.generation),
            loads=self._loads(line),
            touched=self._registers(line),
            scalar=line.name.startswith("s_"),
            at_barrier=line.name in {"s_barrier", "s_barrier_signal"},
            in_lds=_LOCAL.match(line.name) is not None,
        )

    def _loads(self, line: Line) -> frozenset[Register]:
        """The registers that an operation writes: the first operand, when it is a load."""
        loads = "_load_" in line.name or "_read" in line.name or "permute" in line.name
        if not loads or _counter(line, self.generation) is None:
            return frozenset()
        half = None if self.generation == 9 or "d16" not in line.name else int("d16_hi" in line.name)
        return _of(line.operands[0], half)

    def _registers(self, line: Line) -> frozenset[Register]:
        """Those that an instruction names; loads and stores of 16 bits and less mean one half, but of all
        archs with gfx9's ECC both."""
        found = self._loads(line)
        narrow = self.generation > 9 and _NARROW_STORE.search(line.name)
        data = 0 if line.name.startswith("buffer_") else 1
        for number, operand in enumerate(line.operands[1 if found else 0 :]):
            half = operand.half if self.generation > 9 else None
            found |= _of(operand, int("d16_hi" in line.name) if narrow and number == data else half)
        return found | _of_vcc() if _IMPLIED_VCC.match(line.name) else found


def _after(operations: list[Operation], waits: Mapping[str, int]) -> list[Operation]:
    for counter, most in waits.items():
        in_order = [o for o in operations if o.meaning.counter == counter and not o.meaning.scalar]
        kept = {id(o) for o in in_order[-most:]} if most else set()
        operations = [
            o
            for o in operations
            if o.meaning.counter != counter or id(o) in kept or (o.meaning.scalar and most)
        ]
    return operations


def _counter(line: Line, generation: int) -> str | None:
    if line.name.startswith("ds_"):
        return "dscnt" if generation >= 12 else "lgkmcnt"
    if line.name.startswith(("s_load_", "s_buffer_load_")):
        return "kmcnt" if generation >= 12 else "lgkmcnt"
    if not line.name.startswith(_VECTOR_MEMORY) or _CACHES.match(line.name):
        return None
    stores = "_store_" in line.name or ("_atomic_" in line.name and not _returns(line))
    if generation >= 12:
        return "storecnt" if stores else "loadcnt"
    return "vscnt" if stores and generation >= 10 else "vmcnt"


def _returns(line: Line) -> bool:
    return any(word in line.text for word in (" glc", " sc0", "RETURN"))


def _of(operand: Operand, half: int | None = None) -> frozenset[Register]:
    if operand.space not in {"vector", "scalar"}:
        return frozenset()
    halves = (0, 1) if half is None or operand.space == "scalar" else (half,)
    return frozenset((operand.space, operand.index + i, h) for i in range(operand.words) for h in halves)


def _of_vcc() -> frozenset[Register]:
    return frozenset(("scalar", register, half) for register in (106, 107) for half in (0, 1))
