"""The C interpreter as texts: the hand-written parts of `native/`, and functions for table entries.

A library is linked from the first and from the functions that its programs need (`interpreter_library`).
Opcodes are places in the table; the handler of an entry that a library lacks is null.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from vgpu.emulator.isa import INSTRUCTIONS
from vgpu.emulator.isa.entry import WORDS, Entry, Slot

NATIVE = Path(__file__).parent / "native"
_MACHINE = ("machine.h", "arithmetic.h", "doubles.h", "small_floats.h", "transcendental.h", "operands.h")
_MEMORY = ("moves.h", "memory.h", "lanes.h", "matrix.h", "hostcall.h")
_AFTER = ("run.h", "serve_abi.h", "serve.h")

Variant = Literal["plain", "checks", "measure", "races"]
"""What the interpreter does besides executing; its headers have the hooks that `plain.h` describes."""
_HOOKS: Mapping[Variant, tuple[str, ...]] = {
    "plain": ("plain.h",),
    "checks": tuple(
        f"checks/{part}.h" for part in ("state", "waits", "races", "shadow", "barriers", "hooks")
    ),
    "measure": ("measure.h",),
    "races": ("global_races.h",),
}

_MEMORY_NAMES = ("ds_", "global_", "buffer_", "scratch_", "flat_", "s_load_", "s_buffer_")

OPCODES: Mapping[str, int] = MappingProxyType({name: number for number, name in enumerate(INSTRUCTIONS)})


@dataclass(frozen=True, kw_only=True)
class _Type:
    """A type in C: value from raw bits {x}, raw bits from D, the sign bit that neg changes."""

    c: str
    load: str = "{x}"
    store: str = "D"
    sign: str = "0"


_TYPES: Mapping[str, _Type] = {
    "u32": _Type(c="u32"),
    "b32": _Type(c="u32", sign="0x80000000u"),
    "i32": _Type(c="i32", load="(i32){x}", store="(u32)D"),
    "f32": _Type(c="float", load="as_f32({x})", store="bits_f32(D)", sign="0x80000000u"),
    "mix": _Type(c="float", load="as_f32({x})"),
    "u16": _Type(c="u32", load="({x} & 0xffff)", store="D & 0xffff"),
    "i16": _Type(c="i32", load="(i32)(i16){x}", store="(u32)D & 0xffff"),
    "f16": _Type(
        c="float", load="f32_of_f16({x} & 0xffff)", store="f16_rounded(D, F16_BEYOND(w))", sign="0x8000u"
    ),
    "u64": _Type(c="u64"),
    "i64": _Type(c="i64", load="(i64){x}", store="(u64)D"),
    "f64": _Type(c="double", load="as_f64({x})", store="bits_f64(D)", sign="0x80000000u"),
    "mask": _Type(c="u32"),
}
_WIDE_STORES = {
    "u64": "r[l] = (u32)D; r[l + LANES] = (u32)(D >> 32);",
    "i64": "r[l] = (u32)D; r[l + LANES] = (u32)((u64)D >> 32);",
    "f64": "u64 bits = bits_f64(D); r[l] = (u32)bits; r[l + LANES] = (u32)(bits >> 32);",
}


def _declared(slot: Slot, bits: str) -> str:
    """A constant with the slot's name and the value of raw bits."""
    kind = _TYPES[slot.type]
    return f"const {kind.c} {slot.name} = {kind.load.format(x=bits)};"


def _row(kind: str, pointer: str) -> str:
    """The raw bits of lane l in a row, or in two rows of a wide type."""
    return f"pair({pointer}[l], {pointer}[l + LANES])" if kind in _WIDE_STORES else f"{pointer}[l]"


def _stored(kind: str, row: str) -> str:
    return _WIDE_STORES.get(kind, f"{row} = {_TYPES[kind].store};")


def headers(variant: Variant) -> str:
    """The text before handlers. LANES has to be defined when it is compiled."""
    return "\n".join((NATIVE / name).read_text() for name in (*_MACHINE, *_HOOKS[variant], *_MEMORY))


def machine(variant: Variant) -> str:
    """The text of everything but handlers: running workgroups, serving programs, the table of handlers."""
    declared = [
        f'__attribute__((weak, visibility("hidden"))) void op_{name}(Wave *, const Instruction *);'
        for name in INSTRUCTIONS
    ]
    table = ", ".join(f"op_{name}" for name in INSTRUCTIONS)
    lookup = (
        f"Handler const handlers[] = {{{table}}};\n"
        "Handler handler(u32 opcode) { return handlers[opcode]; }\n"
    )
    after = [(NATIVE / name).read_text() for name in _AFTER]
    return "\n".join([headers(variant), *declared, lookup, *after])


def handler(name: str) -> str:
    """The function of a table entry. Weak: two objects of one library may have it."""
    entry = INSTRUCTIONS[name]
    body = _BODIES[entry.form](entry)
    return (
        f"/* {name}: {entry.code} */\n"
        f'__attribute__((weak, visibility("hidden"))) void op_{name}(Wave *w, const Instruction *I)\n'
        f"{{\n    (void)I;\n{body}\n}}\n"
    )


def touches_memory(name: str) -> bool:
    """Whether an instruction's handler calls the variant's hooks; others are the same in every variant."""
    return name.startswith(_MEMORY_NAMES)


def _statement(entry: Entry) -> str:
    """The entry's code with plain variables D, SD, S0 to S3."""
    return re.sub(r"\b(SD|D|S[0-3])\.\w+", r"\1", entry.code) + ";"


def _scalar(entry: Entry) -> str:
    def bits(kind: str, operand: str) -> str:
        if entry.modifiers:
            return f"signed_scalar32(w, {operand}, {_TYPES[kind].sign})"
        return f"scalar{32 * WORDS[kind]}(w, {operand})"

    lines = [_declared(slot, bits(slot.type, f"&I->s[{slot.source}]")) for slot in entry.sources]
    output = entry.type_of("D")
    if output is None:
        return _indented([*lines, _statement(entry)])
    kind = _TYPES[output]
    old = kind.load.format(x=bits(output, "&I->d")) if entry.reads_d else "0"
    store = f"put_scalar{32 * WORDS[output]}(w, &I->d, {kind.store});"
    after = ["if (I->clamp) D = clamped(D);"] if "clamp" in entry.modifiers else []
    return _indented([*lines, f"{kind.c} D = {old};", _statement(entry), *after, store])


def _source_row(slot: Slot) -> list[str]:
    """Row p0 to p3 of a source; the temporary behind it is only used when the source is not a plain row."""
    k, wide = slot.source, int(slot.type in _WIDE_STORES)
    special = {"mask": f"source_mask(w, I, {k}, t{k})", "mix": f"source_mix(w, I, {k}, t{k})"}
    row = special.get(slot.type, f"source(w, I, {k}, {_TYPES[slot.type].sign}, {wide}, t{k})")
    return [f"u32 t{k}[{wide + 1} * LANES];", f"const u32 *p{k} = {row};"]


def _vector(entry: Entry) -> str:
    lines = [line for slot in entry.sources for line in _source_row(slot)]
    loop = [_declared(slot, _row(slot.type, f"p{slot.source}")) for slot in entry.sources]
    output, mask = entry.type_of("D"), entry.type_of("SD")
    stores, after = [], []
    if entry.reads_d:
        lines.append("const u32 *pd = w->v[I->d.index];")
    if output:
        words, kind = WORDS[output], _TYPES[output]
        lines.append(f"u32 r[{words} * LANES];")
        old = f" = {kind.load.format(x=_row(output, 'pd'))}" if entry.reads_d else ""
        loop.append(f"{kind.c} D{old};")
        stores.append(_stored(output, "r[l]"))
        if output in {"f32", "f16"}:
            after.append(f"if (I->clamp) clamp_{output}(r);")
        after.append(f"put_row(w, I, r, {words});")
    if mask:
        lines.append("u32 m[LANES];")
        loop.append("u32 SD;")
        stores.append("m[l] = SD;")
        after.append("put_comparison(w, I, m);")
    if any(slot.name == "SD" and slot.implied == "exec" for slot in entry.slots):
        after.append("EXEC = mask_of_bits(m) & EXEC;")
    loop += [_statement(entry), *stores]
    rows = ", ".join(f"p{slot.source}" for slot in entry.sources)
    common = [f"if (!{entry.rows}(I, {rows}, r))"] if entry.rows else []
    return _indented([*lines, *common, "EACH_LANE {", *(f"    {line}" for line in loop), "}", *after])


def _packed(entry: Entry) -> str:
    wide = entry.type_of("D") == "f32"  # its halves are registers
    lines = ["u32 r[2 * LANES];" if wide else "u32 r[2 * LANES], low[LANES], high[LANES];"]
    for k in (slot.source for slot in entry.sources):
        lines += [f"u32 t{k}[2 * LANES];", f"const u32 *p{k} = source(w, I, {k}, 0, {int(wide)}, t{k});"]
    lines += _packed_half(entry, "op_sel", "neg_lo", "r[l + 0 * LANES]" if wide else "low[l]")
    lines += _packed_half(entry, "op_sel_hi", "neg_hi", "r[l + 1 * LANES]" if wide else "high[l]")
    if entry.type_of("D") == "f16":
        lines.append("if (I->clamp) { clamp_f16(low); clamp_f16(high); }")
    if not wide:
        lines.append("EACH_LANE r[l] = low[l] | high[l] << 16;")
    return _indented([*lines, f"put_row(w, I, r, {2 if wide else 1});"])


def _packed_half(entry: Entry, select: str, negate: str, result: str) -> list[str]:
    """A block that computes one half of every lane."""
    output = entry.type_of("D") or "u32"
    # how to choose a half of source k, and its bits: registers of a pair, or halves of a register
    if output == "f32":
        choice, raw, sign = "const u32 *q{k} = p{k} + ({bit} ? LANES : 0);", "q{k}[l]", "0x80000000u"
    else:
        choice, raw, sign = "const u32 h{k} = {bit} ? 16 : 0;", "(p{k}[l] >> h{k} & 0xffff)", "0x8000u"
    before, loop = [], []
    for slot in entry.sources:
        k, bits = slot.source, raw.format(k=slot.source)
        before.append(choice.format(k=k, bit=f"I->{select} >> {k} & 1"))
        if output.startswith("f"):
            before.append(f"const u32 n{k} = I->{negate} >> {k} & 1 ? {sign} : 0;")
            bits = f"({bits} ^ n{k})"
        loop.append(_declared(slot, bits))
    loop += [f"{_TYPES[output].c} D;", _statement(entry), _stored(output, result)]
    before += ["EACH_LANE {", *(f"    {line}" for line in loop), "}"]
    return ["{", *(f"    {line}" for line in before), "}"]


def _indented(lines: list[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


_BODIES: Mapping[str, Callable[[Entry], str]] = {
    "scalar": _scalar,
    "vector": _vector,
    "packed": _packed,
    "wave": lambda entry: entry.code,
}
