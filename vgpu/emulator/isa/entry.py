"""Entries of the instruction table and the functions that build them.

A statement is the ISA guides' pseudo-code, which is C once operands are replaced: `S0.u32` is source 0 read
as an unsigned word, `D.f32` the destination, `SD.mask` the scalar destination of a comparison or carry. `b32`
is a word whose sign bit takes float modifiers. `D.f16` and other 16-bit types are computed as float or word.
The statement is executed for every lane (vector), once (scalar), for both halves (packed) or for all lanes at
once (wave: it calls a C function by name).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Form = Literal["scalar", "vector", "packed", "wave"]
WORDS: Mapping[str, int] = {
    **dict.fromkeys(("u32", "b32", "i32", "f32", "u16", "i16", "f16", "mix"), 1),
    **dict.fromkeys(("u64", "i64", "f64"), 2),
}
"""Registers per type of value. `mask` is one bit per lane: 2 registers with 64 lanes, 1 with 32."""
HALVES = frozenset({"f16", "u16", "i16"})
FLOAT_OUT = frozenset({"clamp", "mul", "div"})
"""Scales of outputs are ignored, as GPUs do where denormal numbers are kept (guides: output modifiers)."""
LAST_PLACE, SUM_ORDER = "last place", "order of sums"
Approximation = Literal["", "last place", "order of sums"]
"""Why hardware's last bits may differ: an inexact function, sums in an order that is not published."""
_DPP = (
    "quad_perm row_shl row_shr row_ror row_mirror row_half_mirror row_bcast row_newbcast row_share row_xmask "
    "wave_shl wave_rol wave_shr wave_ror row_mask bank_mask bound_ctrl fi"
)
DPP = frozenset(_DPP.split())
SDWA = frozenset({"dst_sel", "dst_unused", "src0_sel", "src1_sel"})

_NAMES = ("D", "SD", "S0", "S1", "S2", "S3")
_OPERAND = re.compile(r"\b(SD|D|S[0-3])\.(\w+)")
_WRITES_D = re.compile(r"\bD\.\w+\s*=(?!=)([^;]*)")


@dataclass(frozen=True, kw_only=True)
class Slot:
    """One operand in text order. `name`: D, SD, or S0 to S4.

    `kind`: "any", or for wave instructions v (vector registers), s (scalar ones), i (a number), o (nothing:
    `off`), c (a label); several letters are alternatives, `?` is present only where an atomic returns the old
    value. `words` 0: by the type. `implied`: the register that an omitted operand means, vcc or exec. Of wave
    instructions, type `offset` is a number that is added to the offset, `barrier` the number of the
    workgroup's barrier.
    """

    name: str
    type: str
    kind: str = "any"
    words: int = 0
    implied: str = ""

    @property
    def source(self) -> int | None:
        """The number of a source; None of a destination."""
        return int(self.name[1]) if self.name[1:].isdigit() else None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One instruction. `code` is C with types still on the operands; `slots` are its operands in text order.

    `reads_d`: the old destination is a source. `modifiers`: those allowed in the text. `archs`: prefixes of
    the archs that have it; empty: every one. `immediate`: type of a 16-bit immediate. `half`: which half of
    the destination is written; None: by op_sel or the register's suffix. `keeps_half`: the other half is kept
    on every arch. `blocks`: independent products of a matrix instruction. `rules`: checks and fields that
    depend on several operands, by their names in binding.py. `approximated`: why its result may differ from
    hardware's; empty: it does not. `rows`: a C function for a common case of a vector instruction; it gets
    the rows of sources and result, and returns whether it has computed all lanes.
    """

    name: str
    form: Form
    code: str
    slots: tuple[Slot, ...]
    reads_d: bool = False
    modifiers: frozenset[str] = frozenset()
    archs: tuple[str, ...] = ()
    immediate: Literal["", "i16", "u16"] = ""
    half: int | None = None
    keeps_half: bool = False
    blocks: int = 0
    rules: tuple[str, ...] = ()
    approximated: Approximation = ""
    rows: str = ""

    def type_of(self, name: str) -> str | None:
        """The type of an operand, or None when the instruction has no such operand."""
        return next((slot.type for slot in self.slots if slot.name == name), None)

    @property
    def sources(self) -> tuple[Slot, ...]:
        """The slots of S0 to S3."""
        return tuple(slot for slot in self.slots if slot.source is not None)


def _slots(code: str, sources: str, implied: Mapping[str, str]) -> tuple[Slot, ...]:
    types: dict[str, str] = {}
    for name, kind in _OPERAND.findall(code):
        if types.setdefault(name, kind) != kind:
            raise ValueError(f"{name} has two types in: {code}")
    kinds = {"D": "any", "SD": "any"}
    return tuple(
        Slot(name=name, type=types[name], kind=kinds.get(name, sources), implied=implied.get(name, ""))
        for name in _NAMES
        if name in types
    )


def _reads_d(code: str) -> bool:
    first = _WRITES_D.search(code)
    return bool(re.search(r"\bD\.", code[: first.start()] + first[1] if first else code))


def _allowed(form: Form, slots: tuple[Slot, ...], code: str) -> frozenset[str]:
    types = {slot.name: slot.type for slot in slots}
    output = types.get("D", "")
    if form == "scalar":
        return frozenset()
    if form == "packed":
        more = {"f16": {"neg_lo", "neg_hi", "clamp"}, "f32": {"neg_lo", "neg_hi"}}.get(output, set())
        saturates = {"clamp"} if "I->clamp" in code else set()
        return frozenset({"op_sel", "op_sel_hi"} | more | saturates)
    if "mix" in types.values():
        return frozenset({"op_sel", "op_sel_hi", "clamp"})
    if "I->immediate" in code:
        return frozenset({"bitop3"})
    narrow = all(WORDS.get(kind, 1) == 1 for kind in types.values())
    return frozenset(
        (FLOAT_OUT if output in {"f32", "f16"} else frozenset())
        | (DPP | SDWA if narrow else frozenset())
        | ({"op_sel"} if HALVES & set(types.values()) else set())
        | ({"clamp"} if "I->clamp" in code else set())
    )


def table(
    form: Form,
    *groups: Mapping[str, str],
    sources: str = "any",
    implied: Mapping[str, str] | None = None,
    **columns: Any,
) -> dict[str, Entry]:
    """Entries from names (several where archs name one operation differently) and statements; `implied`:
    registers of omitted operands, `columns`: fields of every `Entry`."""
    parts = []
    for names, code in (line for lines in groups for line in lines.items()):
        slots = _slots(code, sources, implied or {})
        shared = {"modifiers": _allowed(form, slots, code), "reads_d": _reads_d(code), **columns}
        made = [Entry(name=name, form=form, code=code, slots=slots, **shared) for name in names.split()]
        parts.append({entry.name: entry for entry in made})
    return merged(*parts)


def wave(
    names: str, code: str, operands: str, *, modifiers: Iterable[str] = (), **columns: Any
) -> dict[str, Entry]:
    """Entries that a C function executes. `operands`: `name:kind:words[:type]` in text order."""
    slots = []
    for word in operands.split():
        name, kind, words, type_ = [*word.split(":"), "u32"][:4]
        slots.append(Slot(name=name, type=type_, kind=kind, words=int(words)))
    shared = {"code": code, "slots": tuple(slots), "modifiers": frozenset(modifiers), **columns}
    return {name: Entry(name=name, form="wave", **shared) for name in names.split()}


def merged(*tables: Mapping[str, Entry]) -> dict[str, Entry]:
    """One table of several. Raises ValueError for a name that occurs twice."""
    entries: dict[str, Entry] = {}
    for part in tables:
        if repeated := entries.keys() & part.keys():
            raise ValueError(f"{min(repeated)} is in the instruction table twice")
        entries |= part
    return entries
