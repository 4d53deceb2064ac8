"""Binds decoded instructions to the table: checks operands and fills the interpreter's structure.

Everything in the text is either bound here or refused: operands that do not fit their slot, modifiers that
the entry does not allow, instructions that an arch does not have.

Both instructions of a dual-issue pair (VOPD) read before either writes. They are bound one after another in
an order in which the second does not read the first one's result; when both would, the first one's result
goes through a spare register.
"""

import ctypes
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vgpu.emulator import native
from vgpu.emulator.decoded import Line, Listing, ModifierValue, Operand
from vgpu.emulator.generate import OPCODES
from vgpu.emulator.isa import INSTRUCTIONS
from vgpu.emulator.isa.entry import DPP, HALVES, SDWA, WORDS, Entry, Slot
from vgpu.emulator.isa.wave_ops import INTERRUPT, UNPARSED
from vgpu.emulator.operands import bits, constant_bits, number, operand, source_lanes, swizzled_lanes
from vgpu.emulator.targets import EmulatedTarget
from vgpu.errors import DecodeError

_WRITE_ALL, _WRITE_LOW_KEEP, _WRITE_HIGH_KEEP = 0, 1, 2
_LETTERS = {"vector": "v", "scalar": "s", "constant": "i", "status": "s", "none": "o", "label": "c"}
_DPP_ENCODINGS = {"dpp", "e64_dpp"}
_FLOATS = {"f32", "f16", "f64", "mix", "b32"}
_OFFEN, _FNUZ = 1, 2
_FP16_OVFL = 1 | 23 << 6
"""hwreg(HW_REG_MODE, 23, 1)"""
_ALL_LANES = 0xFFFFFFFFFFFFFFFF
_OF_16_BITS = re.compile(r"^v_(?!s?mfmac?|s?wmmac?|permlane).*(?:16|mix|dot|bf8|fp8)|^s_\w+_f16$")
"""Instructions with constants of 16 bits or fewer. Matrix instructions and permutations have those of 32."""
_SMALL = range(-16, 65)
_REALS_16, _REALS_32 = (
    {
        int.from_bytes(struct.pack(f"<{kind}", real), "little")
        for real in (0.5, -0.5, 1, -1, 2, -2, 4, -4, 0.15915494)
    }
    for kind in "ef"
)
"""Inline constants, as the small integers."""


_NUMBERS = frozenset({"offset", "offset0", "offset1", "clamp", "dst_sel", "dst_unused"})
_BITS = frozenset({"op_sel", "neg_lo", "neg_hi"})
"""Modifiers that are fields of the structure, 0 without them."""


class Binder:
    """Binds lines for one target. `registers`: how many VGPRs and AGPRs the kernel has."""

    def __init__(self, target: EmulatedTarget, registers: tuple[int, int]) -> None:
        self._rows: dict[int, npt.NDArray[np.uint32]] = {}  # must outlive the program's launches
        self._target = target
        self._registers = registers

    def bind(self, line: Line, labels: Mapping[str, int]) -> native.Instruction:
        """One instruction; `labels` to positions in the bound program. Raises DecodeError."""
        try:
            return self._bind(line, _entry(line, self._target), labels)
        except DecodeError as error:
            raise DecodeError(f"{line.location}: {error.what}", cause=error.cause, hint=error.hint) from error

    def _bind(self, line: Line, entry: Entry, labels: Mapping[str, int]) -> native.Instruction:
        bound = native.Instruction(opcode=OPCODES[line.name], address=line.next_address)
        if line.name.endswith(("saveexec_b64", "wrexec_b64")) and self._target.lanes == 32:
            raise DecodeError("EXEC has 32 bits in a wave of 32 lanes")
        if line.name in UNPARSED:
            bound.flags = INTERRUPT in line.text
            return bound
        self._set_modifiers(bound, line, entry)
        for slot, found in self._matched(line, entry):
            if slot.kind == "c":
                if found.text not in labels:
                    raise DecodeError(f"unknown label {found.text}")
                bound.target = labels[found.text]
                continue
            self._check(slot, found, entry)
            self._set_operand(bound, slot, found, line, entry)
        if bound.dpp:
            _check_dpp_sources(bound, self._target)
        self._set_destination(bound, line, entry)
        for rule in entry.rules:
            _RULES[rule](bound, line, self._target)
        return bound

    # ---- operands ----

    def _matched(self, line: Line, entry: Entry) -> list[tuple[Slot, Operand]]:
        """Slots with their operands; implied ones added."""
        slots, given = list(entry.slots), list(line.operands)
        if slots and slots[0].kind.endswith("?") and not _returns(line):
            slots.pop(0)
        implied = [index for index, slot in enumerate(slots) if slot.implied]
        if implied and len(given) == len(slots) - 1:
            name = slots[implied[0]].implied
            given.insert(implied[0], operand(name if self._target.lanes == 64 else f"{name}_lo"))
        if len(given) != len(slots):
            raise DecodeError(f"{len(given)} operands where {line.name} has {len(slots)}")
        return list(zip(slots, given, strict=True))

    def _words(self, slot: Slot, entry: Entry) -> int:
        if slot.words:
            return slot.words
        if slot.type == "mask":
            return self._target.lanes // 32
        return 2 if entry.form == "packed" and slot.type == "f32" else WORDS[slot.type]

    def _check(self, slot: Slot, found: Operand, entry: Entry) -> None:
        if _LETTERS[found.space] not in _allowed(slot, entry):
            raise DecodeError(f"operand {found.text} is not valid for {slot.name}")
        if slot.source is None and found.space == "status":
            raise DecodeError(f"operand {found.text} cannot be written")
        if slot.type == "barrier" and found.integer not in {-1, 0xFFFF}:  # llvm-objdump prints all 16 bits
            raise DecodeError("only the workgroup's barrier, -1, is supported")
        if slot.type == "hwreg" and found.integer != _FP16_OVFL:
            raise DecodeError(f"{found.text}: only MODE's bit 23, FP16_OVFL, is supported by the virtual GPU")
        if (
            found.text == "null"
            and entry.form == "wave"
            and (self._words(slot, entry) + (slot.source is None) > 1 or entry.name.startswith("scratch_"))
        ):
            raise DecodeError(f"operand null is not supported for {slot.name}")
        exact = (slot.words or entry.form != "wave") and found.text != "null"
        if found.space in {"vector", "scalar"} and exact and found.words != self._words(slot, entry):
            raise DecodeError(
                f"operand {found.text} has {found.words} registers, not {self._words(slot, entry)}"
            )
        file, first = divmod(found.index, native.AGPR0)
        # the spare registers belong to dual-issue pairs
        if found.space == "vector" and found.index < native.SPARE0:
            count = self._registers[file]
            if first + found.words > count:
                raise DecodeError(f"operand {found.text} is beyond the {count} registers that the kernel has")
        _check_operand_modifiers(slot, found, entry)

    def _set_operand(
        self, bound: native.Instruction, slot: Slot, found: Operand, line: Line, entry: Entry
    ) -> None:
        source = slot.source
        into = bound.s[source] if source is not None else bound.d if slot.name == "D" else bound.sd
        into.space = native.SPACES[found.space]
        into.words, into.index = found.words, found.index
        into.neg, into.abs, into.sext = found.neg, found.abs, found.sext
        if found.space == "constant":
            into.value = _constant(found, slot, line, entry)
            into.row = self._row(into.value)
            if slot.type == "offset":
                bound.offset += ctypes.c_int32(into.value & 0xFFFFFFFF).value
                into.space = native.SPACES["none"]
        into.half = found.half == 1
        if source is None:
            return
        if slot.type in HALVES and entry.form == "vector":
            into.half = into.half or bits(line.modifiers, "op_sel", 0) >> source & 1
        if source < 2:
            into.sel = number(line.modifiers, f"src{source}_sel")
        changed = into.neg or into.abs or into.sext or into.half or into.sel or (bound.dpp and source == 0)
        into.plain = found.space in {"vector", "constant"} and not changed

    def _row(self, value: int) -> int:
        """The address of a constant spread over all lanes: its low words, then its high ones."""
        if value not in self._rows:
            halves = np.array((value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF), dtype=np.uint32)
            self._rows[value] = np.repeat(halves, self._target.lanes)
        return int(self._rows[value].ctypes.data)

    def _set_destination(self, bound: native.Instruction, line: Line, entry: Entry) -> None:
        if entry.type_of("D") in HALVES and entry.form == "vector":
            named = line.operands[0].half
            selected = bits(line.modifiers, "op_sel", 0) >> min(len(entry.sources), 3) & 1
            high = entry.half if entry.half is not None else named or selected
            keeps = self._target.keeps_high_half or named is not None or entry.keeps_half
            bound.write = _WRITE_HIGH_KEEP if high else _WRITE_LOW_KEEP if keeps else _WRITE_ALL
        bound.plain_write = not (bound.write or bound.dst_sel or bound.dpp)

    # ---- modifiers ----

    def _set_modifiers(self, bound: native.Instruction, line: Line, entry: Entry) -> None:
        values, dpp = line.modifiers, line.encoding in _DPP_ENCODINGS
        known = entry.modifiers - (frozenset() if dpp else DPP)
        known -= frozenset() if line.encoding == "sdwa" else SDWA
        if dpp and entry.type_of("SD"):
            _check_enabled(values)
        if unknown := sorted(set(values) - known):
            raise DecodeError(f"modifier {unknown[0]} is not supported here")
        if line.encoding == "dpp8":
            raise DecodeError("DPP8 is not supported")
        if "dst_sel" in values and "dst_unused" not in values:
            raise DecodeError("dst_sel without dst_unused, whose default depends on the assembler")
        if self._target.generation > 10 and number(values, "bound_ctrl", 1) != 1:
            raise DecodeError("bound_ctrl other than 1, which has the opposite meaning on gfx10 and earlier")
        for name in values.keys() & _NUMBERS:
            setattr(bound, name, number(values, name))
        for name in values.keys() & _BITS:
            setattr(bound, name, bits(values, name, 0))
        bound.op_sel_hi = bits(values, "op_sel_hi", 7 if entry.form == "packed" else 0)
        bound.addressing = (_OFFEN if "offen" in values else 0) | self._target.resource_rules << 2
        bound.immediate = number(values, "bitop3") | _broadcast(values, entry)
        if dpp:
            bound.dpp = 1
            bound.row_mask, bound.bank_mask = number(values, "row_mask", 15), number(values, "bank_mask", 15)
            bound.bound_ctrl, bound.fetch_inactive = "bound_ctrl" in values, number(values, "fi")
            lanes = source_lanes(values, self._target.lanes)
            bound.dpp_lane[: len(lanes)] = lanes


# ---- programs and pairs ----


def bind_lines(listing: Listing, binder: Binder) -> tuple[tuple[Line, ...], Any]:
    """Bind instructions in order; dual-issue pairs become two or three. Raises DecodeError."""
    flat: list[Line] = []
    starts = []
    for line in listing.lines:
        starts.append(len(flat))
        flat.extend(in_order(line) if line.partner else (line,))
    starts.append(len(flat))
    positions = {label: starts[index] for label, index in listing.labels.items()}
    bound = [binder.bind(line, positions) for line in flat]
    if any(one.target >= len(flat) for one in bound):
        raise DecodeError("a branch targets the end of the kernel, behind its last instruction")
    return tuple(flat), (native.Instruction * len(bound))(*bound)


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
    raise DecodeError(f"{line.location}: both instructions of the pair accumulate into what the other reads")


def _reads(line: Line, register: Operand) -> bool:
    """Whether an instruction reads a register as a source; a pair cannot share an accumulator."""
    first = register.index
    return any(o.space == "vector" and o.index <= first < o.index + o.words for o in line.operands[1:])


def _through_spare(one: Line, other: Line) -> tuple[Line, ...]:
    target = one.operands[0]
    spare = replace(target, text="spare", index=512)
    move = replace(one, name="v_mov_b32", encoding="", operands=(target, spare), modifiers={})
    return replace(one, operands=(spare, *one.operands[1:])), other, move


# ---- rules of the table ----


def _global_address(bound: native.Instruction, line: Line, target: EmulatedTarget) -> None:
    """Without a scalar base the address has two registers."""
    if bound.s[0].words != (2 if bound.s[2].space == native.SPACES["none"] else 1):
        raise DecodeError("the address has a wrong number of registers")


def _returns_to_d(bound: native.Instruction, line: Line, target: EmulatedTarget) -> None:
    bound.flags = int(bound.d.words > 0)


def _returns_to_data(bound: native.Instruction, line: Line, target: EmulatedTarget) -> None:
    bound.flags = _returns(line)


def _low_constants(bound: native.Instruction, line: Line, target: EmulatedTarget) -> None:
    """The high half of a constant is refused: the guides do not define it."""
    for place, source in enumerate(bound.s[:2]):
        if source.space == native.SPACES["constant"] and bound.op_sel >> place & 1:
            raise DecodeError("the high half of a constant is not supported")


def _wmma_inputs(bound: native.Instruction, line: Line, target: EmulatedTarget) -> None:
    """gfx11 has each element in both halves of the wave."""
    bound.flags = int(target.generation >= 12)
    words = (4 if bound.flags else 8) // (1 if line.name.endswith("f16") else 2)
    if bound.s[0].words != words or bound.s[1].words != words:
        raise DecodeError(f"inputs of {line.name} have {words} registers on {target.arch}")


def _eight_bit_format(bound: native.Instruction, line: Line, target: EmulatedTarget) -> None:
    """gfx940 to gfx942 have 8-bit floats without infinities and negative zero, later archs those of OCP."""
    bound.flags = _FNUZ if target.arch.startswith("gfx94") else 0


_FORMAT_WORDS = (8, 8, 6, 6, 4)
"""Registers of 32 elements: E4M3, E5M2, E2M3, E3M2, E2M1, numbered as in cbsz and blgp."""


def _formats(bound: native.Instruction, line: Line, target: EmulatedTarget) -> None:
    found = number(line.modifiers, "cbsz"), number(line.modifiers, "blgp")
    for operand_, kind in zip(bound.s, found, strict=False):
        if kind >= len(_FORMAT_WORDS) or operand_.words != _FORMAT_WORDS[kind]:
            raise DecodeError(f"inputs of {line.name} do not have the registers of formats {found}")
    widths = {_FORMAT_WORDS[kind] for kind in found}
    if 6 in widths and (len(widths) > 1 or "scale" in line.name):
        raise DecodeError(
            "6-bit formats with scales or another width are not supported: which elements lanes hold is not "
            "verified"
        )
    bound.flags = found[0] | found[1] << 4


def _swizzle(bound: native.Instruction, line: Line, target: EmulatedTarget) -> None:
    bound.dpp_lane[: target.lanes] = swizzled_lanes(bound.offset & 0xFFFF, target.lanes)


_RULES: Mapping[str, Callable[[native.Instruction, Line, EmulatedTarget], None]] = {
    "global_address": _global_address,
    "returns_to_d": _returns_to_d,
    "returns_to_data": _returns_to_data,
    "wmma_inputs": _wmma_inputs,
    "eight_bit_format": _eight_bit_format,
    "low_constants": _low_constants,
    "formats": _formats,
    "swizzle": _swizzle,
}


def _check_dpp_sources(bound: native.Instruction, target: EmulatedTarget) -> None:
    """The lanes that are read are those of a vector register; the second source is one too on most archs."""
    vector = native.SPACES["vector"]
    second = not target.arch.startswith(("gfx115", "gfx12")) and bound.s[1].words
    if bound.s[0].space != vector or (second and bound.s[1].space != vector):
        raise DecodeError(f"DPP on {target.arch} needs vector registers as its sources")


def _check_enabled(values: Mapping[str, ModifierValue]) -> None:
    """Refuses DPP that disables lanes: whether their bits of the mask are kept is not verified."""
    masks = number(values, "row_mask", 15) & number(values, "bank_mask", 15)
    if masks != 15 or "bound_ctrl" not in values:
        raise DecodeError(
            "DPP that disables lanes of an instruction with a mask as its result is not supported"
        )


def _returns(line: Line) -> int:
    """Whether an atomic returns the old value."""
    modifiers = line.modifiers
    return int(bool(modifiers.get("glc") or modifiers.get("sc0")) or "RETURN" in str(modifiers.get("th", "")))


def _allowed(slot: Slot, entry: Entry) -> str:
    """The letters of the spaces that a slot allows."""
    if entry.form == "wave":
        return slot.kind
    if slot.name == "SD" or (slot.name == "D" and entry.form == "scalar"):
        return "s"
    if slot.name == "D":
        return "v"
    return "si" if slot.type == "mask" or entry.form == "scalar" else "vsi"


def _check_operand_modifiers(slot: Slot, found: Operand, entry: Entry) -> None:
    floats = entry.form == "vector" or (entry.form == "scalar" and entry.modifiers)
    if (found.neg or found.abs or found.sext) and not (floats and slot.source is not None):
        raise DecodeError(f"operand {found.text} cannot have a modifier here")
    if (found.neg or found.abs) and slot.type not in _FLOATS:
        raise DecodeError(f"operand {found.text} is not a float: neg and abs are not supported")
    if found.half is not None and slot.type not in HALVES:
        raise DecodeError(f"operand {found.text} is half of a register, but {slot.name} is {slot.type}")


def _constant(found: Operand, slot: Slot, line: Line, entry: Entry) -> int:
    kind = slot.type
    if (
        entry.form != "wave"
        and not entry.immediate
        and (entry.form == "packed" or _OF_16_BITS.search(line.name))
    ):
        _check_spelling(found, slot, line)
    if kind == "mix":
        kind = "f16" if bits(line.modifiers, "op_sel_hi", 0) >> int(slot.name[1]) & 1 else "f32"
    value = constant_bits(found, kind)
    if entry.form == "packed" and kind == "f32":
        return value | value << 32
    if entry.immediate:
        value &= 0xFFFF
    if entry.immediate == "i16":
        value = ((value ^ 0x8000) - 0x8000) & 0xFFFFFFFF
    if kind == "mask" and value not in {0, 1, 0xFFFFFFFF}:
        raise DecodeError(f"the constant {found.text} as a mask is not supported")
    return _ALL_LANES if kind == "mask" and value == 0xFFFFFFFF else value


def _check_spelling(found: Operand, slot: Slot, line: Line) -> None:
    """Refuses constants of 16 bits or fewer that LLVM prints otherwise: their encoding may mean another one,
    or has a high half that the guides do not define."""
    value, low = found.integer, found.integer & 0xFFFF
    if found.real is not None:
        wrong = slot.type in {"u32", "u16"}
    elif not found.hexadecimal:
        wrong = value not in _SMALL
    else:
        short = value <= 0xFFFF or value >= 0xFFFF0000
        # an integer of 16 bits has no inline floats: LLVM prints 0.5 of v_mov_b16 as the literal 0x3800
        real = low in _REALS_16 and slot.type not in {"u16", "i16"}
        inline = low in _SMALL or low - 0x10000 in _SMALL or real
        wrong = value in _REALS_32 or (short and inline)
    high = bits(line.modifiers, "op_sel", 0) >> (slot.source or 0) & 1
    if wrong or (high and found.text != "0"):
        raise DecodeError(f"the constant {found.text} of {line.name} is not as the compiler writes them")


def _broadcast(values: Mapping[str, ModifierValue], entry: Entry) -> int:
    """cbsz and abid of a matrix instruction of several blocks, as matrix.h reads them."""
    if "formats" in entry.rules:
        return 0
    size, block = number(values, "cbsz"), number(values, "abid")
    if (size or block) and (1 << size > entry.blocks or block >> size):
        raise DecodeError(f"cbsz:{size} abid:{block} is beyond the instruction's blocks")
    return size | block << 4


def _entry(line: Line, target: EmulatedTarget) -> Entry:
    entry = INSTRUCTIONS.get(line.name)
    if entry is None:
        raise DecodeError(
            f"unknown instruction {line.name}",
            cause="the emulator's instruction table does not have it",
            hint="add it to vgpu/emulator/isa with a model for its test",
        )
    if entry.archs and not target.arch.startswith(entry.archs):
        raise DecodeError(f"{target.arch} does not have {line.name}")
    return entry
