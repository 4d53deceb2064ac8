"""A decoded instruction against the table: operands checked and put into the interpreter's structure.

Everything that the text says is either bound here or refused: operands that do not fit their slot, modifiers that the entry does not
allow, instructions that an arch does not have.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from aotforge.errors import DecodeError
from aotforge.virtual_gpu.emulator import native
from aotforge.virtual_gpu.emulator.constants import constant_bits
from aotforge.virtual_gpu.emulator.decoded import Line, ModifierValue, Operand
from aotforge.virtual_gpu.emulator.dpp import source_lanes
from aotforge.virtual_gpu.emulator.generate import OPCODES
from aotforge.virtual_gpu.emulator.isa import INSTRUCTIONS
from aotforge.virtual_gpu.emulator.isa.entry import DPP, SDWA, WORDS, Entry, Slot
from aotforge.virtual_gpu.emulator.isa.no_ops import IDLE
from aotforge.virtual_gpu.emulator.modifiers import bits, number
from aotforge.virtual_gpu.emulator.operands import operand
from aotforge.virtual_gpu.emulator.targets import EmulatedTarget

_KEEPS_HIGH = {"v_fma_mixlo_f16", "v_fma_mixhi_f16", "v_fma_f16"}
"""16-bit results that leave the other half alone on every target."""
_HALVES = {"f16", "u16", "i16"}
_WRITE_ALL, _WRITE_LOW_KEEP, _WRITE_HIGH_KEEP = 0, 1, 2
_LETTERS = {"vector": "v", "scalar": "s", "constant": "i", "status": "s", "none": "o", "label": "c"}
_RETURNING = ("glc", "sc0")
_SIGNED_IMMEDIATE = ("s_movk_", "s_addk_", "s_mulk_", "s_cmpk_")
_OFFEN = 1


class Rows:
    """Constants spread over all lanes, one array per value; kept alive as long as the program."""

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self._rows: dict[int, npt.NDArray[np.uint32]] = {}

    def address(self, value: int) -> int:
        """The address of two rows: the value's low word, then its high one."""
        if value not in self._rows:
            halves = (value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF)
            self._rows[value] = np.repeat(np.array(halves, dtype=np.uint32), self._lanes)
        return int(self._rows[value].ctypes.data)


class Binder:
    """Binds lines for one target. `registers`: how many VGPRs and AGPRs the kernel has."""

    def __init__(self, target: EmulatedTarget, registers: tuple[int, int]) -> None:
        self.rows = Rows(target.lanes)
        self._target = target
        self._registers = registers

    def bind(self, line: Line, labels: Mapping[str, int]) -> native.Instruction:
        """One instruction; `labels` lead to positions in the bound program. Raises DecodeError with line and text."""
        try:
            return self._bind(line, _entry(line, self._target), labels)
        except DecodeError as error:
            raise DecodeError(f"{line.place}: {error.what}", cause=error.cause, hint=error.hint) from error

    def _bind(self, line: Line, entry: Entry, labels: Mapping[str, int]) -> native.Instruction:
        bound = native.Instruction(opcode=OPCODES[line.name], address=line.next_address)
        if line.name in IDLE:
            return bound
        self._modifiers(bound, line, entry)
        for slot, found in self._matched(line, entry):
            if slot.kind == "c":
                if found.text not in labels:
                    raise DecodeError(f"unknown label {found.text}")
                bound.target = labels[found.text]
                continue
            self._check(slot, found, entry)
            self._place(bound, slot, found, line, entry)
        self._finish(bound, line, entry)
        return bound

    # ---- operands ----

    def _matched(self, line: Line, entry: Entry) -> list[tuple[Slot, Operand]]:
        """Slots with their operands; implied ones added."""
        slots, given = list(entry.slots), list(line.operands)
        vcc = operand("vcc" if self._target.lanes == 64 else "vcc_lo")
        if slots and slots[0].kind.endswith("?"):  # the old value of an atomic
            if _returns(line):
                slots[0] = replace(slots[0], kind=slots[0].kind[:-1])
            else:
                slots.pop(0)
        if line.name.startswith("v_cmpx") and len(given) == len(slots) - 1:
            given.insert(0, operand("exec" if self._target.lanes == 64 else "exec_lo"))
        if line.name == "v_div_fmas_f32" or (line.encoding == "dual" and line.name == "v_cndmask_b32"):
            given.append(vcc)
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
            raise DecodeError(f"operand {found.text} cannot stand for {slot.place}")
        if slot.place in {"D", "SD"} and found.space == "status":
            raise DecodeError(f"operand {found.text} cannot be written")
        exact = (slot.words or entry.form != "wave") and found.text != "null"
        if found.space in {"vector", "scalar"} and exact and found.words != self._words(slot, entry):
            raise DecodeError(
                f"operand {found.text} has {found.words} registers, not {self._words(slot, entry)}"
            )
        if found.space == "vector":
            self._check_register(found)
        self._check_operand_modifiers(slot, found, entry)

    def _check_register(self, found: Operand) -> None:
        file, first = divmod(found.index, native.AGPR0)
        if found.index >= native.SPARE0:  # a pair's own row
            return
        if first + found.words > self._registers[file]:
            raise DecodeError(
                f"operand {found.text} is beyond the {self._registers[file]} registers that the kernel has"
            )

    def _check_operand_modifiers(self, slot: Slot, found: Operand, entry: Entry) -> None:
        source = slot.place in {"S0", "S1", "S2", "S3"} and entry.form in {"vector", "packed"}
        if (found.neg or found.abs or found.sext) and (not source or entry.form == "packed"):
            raise DecodeError(f"operand {found.text} cannot have a modifier here")
        if (found.neg or found.abs) and slot.type not in {"f32", "f16", "f64", "mix", "b32"}:
            raise DecodeError(f"operand {found.text} is no float, so neg and abs are not supported")
        if found.half is not None and slot.type not in _HALVES:
            raise DecodeError(f"half of a register where {slot.place} is {slot.type}")

    def _place(self, bound: native.Instruction, slot: Slot, found: Operand, line: Line, entry: Entry) -> None:
        number_ = -1 if slot.place in {"D", "SD"} else int(slot.place[1])
        target = bound.d if slot.place == "D" else bound.sd if slot.place == "SD" else bound.s[number_]
        target.space = native.SPACES[found.space]
        target.words, target.index = found.words, found.index
        target.neg, target.abs, target.sext = found.neg, found.abs, found.sext
        if found.space == "constant":
            target.value = self._constant(found, slot, line, entry)
            target.row = self.rows.address(target.value)
        if number_ < 0:
            return
        high = found.half == 1
        if slot.type in _HALVES and entry.form == "vector":
            high = high or bool(bits(line.modifiers, "op_sel", 0) >> number_ & 1)
        target.half = high
        if number_ < 2:
            target.sel = number(line.modifiers, f"src{number_}_sel")
        changed = (
            target.neg
            or target.abs
            or target.sext
            or target.half
            or target.sel
            or (bound.dpp and number_ == 0)
        )
        target.plain = found.space in {"vector", "constant"} and not changed

    def _constant(self, found: Operand, slot: Slot, line: Line, entry: Entry) -> int:
        kind = slot.type
        if kind == "mix":
            kind = "f16" if bits(line.modifiers, "op_sel_hi", 0) >> int(slot.place[1]) & 1 else "f32"
        if entry.form == "packed" and kind == "f32":
            bits32 = constant_bits(found, "f32")
            return bits32 | bits32 << 32
        value = constant_bits(found, kind)
        if line.name.startswith(_SIGNED_IMMEDIATE):
            value &= 0xFFFF
            if "_u32" not in line.name:
                value = ((value ^ 0x8000) - 0x8000) & 0xFFFFFFFF
        if kind == "mask" and value not in {0, 1, 0xFFFFFFFF}:
            raise DecodeError(f"the constant {found.text} as a mask is not supported")
        if kind == "mask" and value == 0xFFFFFFFF:
            value = 0xFFFFFFFFFFFFFFFF
        return value

    # ---- modifiers ----

    def _modifiers(self, bound: native.Instruction, line: Line, entry: Entry) -> None:
        known = entry.modifiers
        if line.encoding not in {"dpp", "e64_dpp"}:
            known = known - DPP
        if line.encoding != "sdwa":
            known = known - SDWA
        if line.encoding in {"dpp", "e64_dpp"} and entry.type_of("SD"):
            raise DecodeError("DPP on an instruction with a mask as its result is not supported")
        if unknown := sorted(set(line.modifiers) - known):
            raise DecodeError(f"modifier {unknown[0]} is not supported here")
        if line.encoding == "dpp8":
            raise DecodeError("DPP8 is not supported")
        values = line.modifiers
        bound.offset = number(values, "offset")
        bound.offset0, bound.offset1 = number(values, "offset0"), number(values, "offset1")
        bound.addressing = _OFFEN if "offen" in values else 0
        bound.clamp = number(values, "clamp")
        bound.omod = self._output_scale(values)
        bound.op_sel = bits(values, "op_sel", 0)
        bound.op_sel_hi = bits(values, "op_sel_hi", 7 if entry.form == "packed" else 0)
        bound.neg_lo, bound.neg_hi = bits(values, "neg_lo", 0), bits(values, "neg_hi", 0)
        bound.immediate = number(values, "bitop3") | _broadcast(values, entry)
        bound.dst_sel, bound.dst_unused = number(values, "dst_sel"), number(values, "dst_unused")
        if line.encoding in {"dpp", "e64_dpp"}:
            bound.dpp = 1
            bound.row_mask, bound.bank_mask = number(values, "row_mask", 15), number(values, "bank_mask", 15)
            bound.bound_ctrl, bound.fetch_inactive = "bound_ctrl" in values, number(values, "fi")
            for lane, source in enumerate(source_lanes(values, self._target.lanes)):
                bound.dpp_lane[lane] = source

    @staticmethod
    def _output_scale(values: Mapping[str, object]) -> int:
        found = {("mul", values.get("mul")), ("div", values.get("div"))} - {("mul", None), ("div", None)}
        known = {("mul", 2): 1, ("mul", 4): 2, ("div", 2): 3}
        if len(found) > 1 or any(one not in known for one in found):
            raise DecodeError("unknown output scale")
        return next((known[one] for one in found), 0)  # type: ignore[index]

    def _finish(self, bound: native.Instruction, line: Line, entry: Entry) -> None:
        output = entry.type_of("D")
        sources = sum(slot.place in {"S0", "S1", "S2"} for slot in entry.slots)
        if output in _HALVES and entry.form == "vector":
            half = line.operands[0].half
            high = half == 1 or bool(
                bits(line.modifiers, "op_sel", 0) >> sources & 1 and entry.name != "v_fma_mixhi_f16"
            )
            if entry.name.startswith("v_fma_mix"):
                high = entry.name == "v_fma_mixhi_f16"
            keeps = self._target.keeps_high_half or half is not None or entry.name in _KEEPS_HIGH
            bound.write = _WRITE_HIGH_KEEP if high else _WRITE_LOW_KEEP if keeps else _WRITE_ALL
        bound.plain_write = not (bound.write or bound.dst_sel or bound.dpp)
        if (
            line.name.startswith(("s_load_", "s_buffer_load_"))
            and bound.s[1].space == native.SPACES["constant"]
        ):
            bound.offset += ctypes.c_int32(bound.s[1].value & 0xFFFFFFFF).value
            bound.s[1].space = native.SPACES["none"]
        if line.name.startswith("s_barrier_") and line.operands[0].integer != -1:
            raise DecodeError("only the workgroup's barrier, -1, is supported")
        if line.name.startswith("global_"):
            self._check_address(bound)
        if "atomic" in line.name or "_rtn_" in line.name:
            bound.flags = _returns(line) if line.name.startswith("buffer_") else int(bound.d.words > 0)
        if line.name.startswith("v_wmma"):
            bound.flags = int(self._target.generation >= 12)
            words = 4 if self._target.generation >= 12 else 8
            if bound.s[0].words != words or bound.s[1].words != words:
                raise DecodeError(f"inputs of {line.name} have {words} registers on {self._target.arch}")

    @staticmethod
    def _check_address(bound: native.Instruction) -> None:
        wide = bound.s[2].space == native.SPACES["none"]
        if bound.s[0].words != (2 if wide else 1):
            raise DecodeError("the address has a wrong number of registers")


def _returns(line: Line) -> int:
    """Whether an atomic asks for the old value."""
    named = any(line.modifiers.get(name) for name in _RETURNING)
    return int(named or "RETURN" in str(line.modifiers.get("th", "")))


def _allowed(slot: Slot, entry: Entry) -> str:
    """The letters of what may stand in a slot."""
    if entry.form == "wave":
        return slot.kind
    if slot.place == "SD" or (slot.place == "D" and entry.form == "scalar"):
        return "s"
    if slot.place == "D":
        return "v"
    return "si" if slot.type == "mask" or entry.form == "scalar" else "vsi"


def _entry(line: Line, target: EmulatedTarget) -> Entry:
    entry = INSTRUCTIONS.get(line.name)
    if entry is None:
        raise DecodeError(
            f"unknown instruction {line.name}",
            cause="the emulator's instruction table does not have it",
            hint="add it to aotforge/virtual_gpu/emulator/isa with a model for its test",
        )
    if entry.archs and not any(target.arch.startswith(prefix) for prefix in entry.archs):
        raise DecodeError(f"{line.name} is not known on {target.arch}")
    return entry


def _broadcast(values: Mapping[str, ModifierValue], entry: Entry) -> int:
    """cbsz and abid of a matrix instruction of several blocks, as matrix.h reads them."""
    size, block = number(values, "cbsz"), number(values, "abid")
    found = re.match(r"mfma\(w, I, \d+, \d+, (\d+),", entry.code)
    if (size or block) and (not found or 1 << size > int(found[1]) or block >> size):
        raise DecodeError(f"cbsz:{size} abid:{block} is beyond the instruction's blocks")
    return size | block << 4
