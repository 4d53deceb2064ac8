"""A second model of wait counters, in Python and from the assembly text alone: what the emulator's checks are held against.

It follows a trace as lists of outstanding operations, where the emulator numbers them. gfx9 only: vmcnt counts vector memory in order;
lgkmcnt counts LDS, in order, and scalar loads, which come back in any order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from aotforge.virtual_gpu.emulator.decoded import Line, Operand
from aotforge.virtual_gpu.emulator.launch import Step

Register = tuple[str, int]
_WAIT = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")
_IMPLIED_VCC = re.compile(r"s_cbranch_vcc|v_div_fmas")


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation that has been issued, and the registers that it will write."""

    counter: str
    scalar: bool
    loads: frozenset[Register]
    line: Line


@dataclass(kw_only=True)
class Replay:
    """Feed it every step of a launch on one thread. `violations`: an instruction that touches what is still outstanding, or a
    barrier that a wave reaches with LDS operations outstanding.
    """

    violations: list[str] = field(default_factory=list)
    _outstanding: dict[int, list[Operation]] = field(default_factory=dict)

    def step(self, step: Step) -> None:
        """One executed instruction."""
        wave, line = int(step.wave.number), step.line
        if line.address == 0:  # another workgroup's
            self._outstanding[wave] = []
        operations = self._outstanding[wave]
        if line.name == "s_waitcnt":
            self._outstanding[wave] = _after(operations, line)
            return
        counter, loads = _counter(line), _loads(line)
        touched = _registers(line)
        for operation in operations:
            in_order = (
                counter == operation.counter and not operation.scalar and not line.name.startswith("s_")
            )
            if operation.loads & (touched - loads if in_order else touched):
                self.violations.append(f"{line.location} after {operation.line.location}")
            if line.name == "s_barrier" and operation.line.name.startswith(("ds_read", "ds_write", "ds_add")):
                self.violations.append(f"{line.location} with {operation.line.location}")
        if counter:
            operations.append(
                Operation(counter=counter, scalar=line.name.startswith("s_"), loads=loads, line=line)
            )


def _after(operations: list[Operation], wait: Line) -> list[Operation]:
    for counter, text in _WAIT.findall(wait.text):
        most = int(text)
        in_order = [o for o in operations if o.counter == counter and not o.scalar]
        kept = [] if most == 0 else in_order[-most:]
        operations = [
            o for o in operations if o.counter != counter or any(o is k for k in kept) or (o.scalar and most)
        ]
    return operations


def _counter(line: Line) -> str | None:
    if line.name.startswith(("ds_", "s_load_", "s_buffer_load_")):
        return "lgkmcnt"
    memory = line.name.startswith(("global_", "buffer_", "scratch_")) and not line.name.startswith(
        "buffer_wb"
    )
    return "vmcnt" if memory else None


def _loads(line: Line) -> frozenset[Register]:
    """The registers that an operation writes: the first operand, when it is a load."""
    loads = "_load_" in line.name or "_read" in line.name or "permute" in line.name
    return _of(line.operands[0]) if loads and _counter(line) else frozenset()


def _registers(line: Line) -> frozenset[Register]:
    found: frozenset[Register] = frozenset().union(*(_of(operand) for operand in line.operands))
    return found | {("scalar", 106), ("scalar", 107)} if _IMPLIED_VCC.match(line.name) else found


def _of(operand: Operand) -> frozenset[Register]:
    if operand.space not in {"vector", "scalar"}:
        return frozenset()
    return frozenset((operand.space, operand.index + i) for i in range(operand.words))
