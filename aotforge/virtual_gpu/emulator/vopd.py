"""Dual-issue pairs (VOPD): both instructions read before either writes.

They are executed one after another in an order in which the second does not read what the first has written; when both read the
other's result, the first one's goes to a spare register and is moved afterwards.
"""

from __future__ import annotations

from dataclasses import replace

from aotforge.errors import DecodeError
from aotforge.virtual_gpu.emulator.decoded import Line, Operand
from aotforge.virtual_gpu.emulator.isa import INSTRUCTIONS


def in_order(line: Line) -> tuple[Line, ...]:
    """The instructions of a pair in the order to execute them. Raises DecodeError."""
    first, second = replace(line, partner=None), line.partner
    if second is None or not first.operands or not second.operands:
        raise DecodeError(f"{line.location}: not a pair of instructions with operands")
    second = replace(second, address=line.address, next_address=line.next_address)
    if not _reads(second, first.operands[0]):
        return first, second
    if not _reads(first, second.operands[0]):
        return second, first
    for one, other in ((first, second), (second, first)):
        entry = INSTRUCTIONS.get(one.name)
        if entry is not None and not entry.reads_d:
            return _through_spare(one, other)
    raise DecodeError(
        f"{line.location}: both instructions of the pair accumulate into what the other one reads"
    )


def _reads(line: Line, register: Operand) -> bool:
    """Whether an instruction reads a register as a source. An accumulator is its own register, which a pair cannot share."""
    return any(
        o.space == "vector" and o.index <= register.index < o.index + o.words for o in line.operands[1:]
    )


def _through_spare(one: Line, other: Line) -> tuple[Line, ...]:
    target = one.operands[0]
    spare = replace(target, text="spare", index=512)
    move = replace(one, name="v_mov_b32", encoding="", operands=(target, spare), modifiers={})
    return replace(one, operands=(spare, *one.operands[1:])), other, move
