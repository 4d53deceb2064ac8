"""What one line of the instruction table says, and how it is read.

A line is the ISA guides' name and its meaning as the guides' pseudo-code has it, which is C once operands are
replaced: `S0.u32` is source 0 read as an unsigned word, `D.f32` the destination, `SD.mask` the scalar destination
of a comparison or carry. `b32` is a word
whose sign bit takes float modifiers. `D.f16` and the other 16-bit types are computed as float or word. The statement is done for every lane
(vector), once (scalar), for both halves (packed) or for the whole wave (wave: it calls a C function by name).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Form = Literal["scalar", "vector", "packed", "wave"]
WORDS: Mapping[str, int] = {
    "u32": 1, "b32": 1, "i32": 1, "f32": 1, "u16": 1, "i16": 1, "f16": 1, "mix": 1, "u64": 2, "i64": 2, "f64": 2,
}  # fmt: skip
"""Registers that a value of a type takes. `mask` is one bit per lane: 2 with 64 lanes, 1 with 32."""

_OPERAND = re.compile(r"\b(SD|D|S[0-3])\.(\w+)")
_WRITES_D = re.compile(r"\bD\.\w+\s*=(?!=)([^;]*)")


@dataclass(frozen=True, kw_only=True)
class Slot:
    """One operand as the assembly text has it: its place (D, SD, S0 to S3), its type, and what may stand there.

    `kind`: "any", or for wave instructions v (vector registers), s (scalar ones), i (a number), o (nothing: `off`),
    c (a label); several letters are alternatives. `words` 0: by the type.
    """

    place: str
    type: str
    kind: str = "any"
    words: int = 0


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One instruction. `code` is C with types still on the operands; `slots` are its operands in text order.

    `reads_d`: the old destination is a source. `modifiers`: what the text may say beside the operands. `fixed`: fields of
    the instruction with a value of their own. `archs`: prefixes of the chips where this meaning holds; empty: every one.
    """

    name: str
    form: Form
    code: str
    slots: tuple[Slot, ...]
    reads_d: bool = False
    modifiers: frozenset[str] = frozenset()
    archs: tuple[str, ...] = ()

    def type_of(self, place: str) -> str | None:
        """The type of an operand, or None when the instruction has no such operand."""
        return next((slot.type for slot in self.slots if slot.place == place), None)


FLOAT_OUT = frozenset({"clamp", "mul", "div"})
DPP = frozenset(
    {
        "quad_perm", "row_shl", "row_shr", "row_ror", "row_mirror", "row_half_mirror", "row_bcast", "row_newbcast",
        "row_share", "row_xmask", "wave_shl", "wave_rol", "wave_shr", "wave_ror", "row_mask", "bank_mask",
        "bound_ctrl", "fi",
    }
)  # fmt: skip
SDWA = frozenset({"dst_sel", "dst_unused", "src0_sel", "src1_sel"})


def _slots(code: str) -> tuple[tuple[Slot, ...], bool]:
    types: dict[str, str] = {}
    for place, kind in _OPERAND.findall(code):
        if types.setdefault(place, kind) != kind:
            raise ValueError(f"{place} has two types in: {code}")
    order = [place for place in ("D", "SD", "S0", "S1", "S2", "S3") if place in types]
    first = _WRITES_D.search(code)
    read_before = code[: first.start()] + first[1] if first else code
    return tuple(Slot(place=place, type=types[place]) for place in order), bool(
        re.search(r"\bD\.", read_before)
    )


def _allowed(form: Form, slots: tuple[Slot, ...], code: str) -> frozenset[str]:
    if form == "scalar":
        return frozenset()
    types = {slot.place: slot.type for slot in slots}
    output = types.get("D", "")
    allowed: set[str] = set()
    if form == "packed":
        allowed = {"op_sel", "op_sel_hi"} | ({"neg_lo", "neg_hi", "clamp"} if output[0] == "f" else set())
        return frozenset(allowed - ({"clamp"} if output == "f32" else set()))
    if output in {"f32", "f16"}:
        allowed |= FLOAT_OUT
    if WORDS.get(output, 1) == 1 and all(WORDS.get(t, 1) == 1 for t in types.values()):
        allowed |= DPP | SDWA
    if any(t in {"u16", "i16", "f16"} for t in types.values()):
        allowed |= {"op_sel"}
    if "I->clamp" in code:
        allowed |= {"clamp"}
    if "I->immediate" in code:
        allowed = {"bitop3"}
    if "mix" in types.values():
        allowed = {"op_sel", "op_sel_hi", "clamp"}
    return frozenset(allowed)


def table(form: Form, lines: Mapping[str, str], *, archs: tuple[str, ...] = ()) -> dict[str, Entry]:
    """Entries from names (several where chips call the same thing differently) and statements."""
    entries: dict[str, Entry] = {}
    for names, code in lines.items():
        slots, reads_d = _slots(code)
        for name in names.split():
            entries[name] = Entry(
                name=name,
                form=form,
                code=code,
                slots=slots,
                reads_d=reads_d,
                modifiers=_allowed(form, slots, code),
                archs=archs,
            )
    return entries


def wave(
    names: str, code: str, operands: str, *, modifiers: Iterable[str] = (), archs: tuple[str, ...] = ()
) -> dict[str, Entry]:
    """Entries of instructions that a C function does. `operands`: `place:kind:words` in text order."""
    slots = []
    for word in operands.split():
        place, kind, words = word.split(":")
        slots.append(Slot(place=place, type="u32", kind=kind, words=int(words)))
    allowed = frozenset(modifiers)
    return {
        name: Entry(name=name, form="wave", code=code, slots=tuple(slots), modifiers=allowed, archs=archs)
        for name in names.split()
    }


def merged(*tables: Mapping[str, Entry]) -> dict[str, Entry]:
    """One table of several; a name twice is an error."""
    entries: dict[str, Entry] = {}
    for part in tables:
        for name, entry in part.items():
            if name in entries:
                raise ValueError(f"{name} is in the instruction table twice")
            entries[name] = entry
    return entries
