"""The C interpreter as text: a function per entry of the instruction table, between the hand-written parts in `native/`.

Handlers are named by their place in the table, so that opcodes are stable within one text; `OPCODES` maps names to them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from aotforge.virtual_gpu.emulator.isa import INSTRUCTIONS
from aotforge.virtual_gpu.emulator.isa.entry import Entry, Slot

NATIVE = Path(__file__).parent / "native"
_MACHINE = ("machine.h", "arithmetic.h", "transcendental.h", "operands.h")
_MEMORY = ("memory.h", "lanes.h", "matrix.h")
_AFTER = ("run.h", "serve_abi.h", "serve.h")

Variant = Literal["plain", "checks", "measure"]
"""What the interpreter checks or measures while it executes; each has headers in `native/` with the hooks that `plain.h` describes."""
_HOOKS: Mapping[Variant, tuple[str, ...]] = {
    "plain": ("plain.h",),
    "checks": tuple(
        f"checks/{part}.h" for part in ("state", "waits", "races", "shadow", "barriers", "hooks")
    ),
    "measure": ("measure.h",),
}

OPCODES: Mapping[str, int] = MappingProxyType({name: number for number, name in enumerate(INSTRUCTIONS)})

_C = {
    **dict.fromkeys(("u32", "b32", "u16", "mask"), "u32"),
    **dict.fromkeys(("i32", "i16"), "i32"),
    **dict.fromkeys(("f32", "f16", "mix"), "float"),
    "u64": "u64",
    "i64": "i64",
    "f64": "double",
}
_WIDE = {"u64", "i64", "f64"}
_LOAD = {
    "u32": "{p}[l]",
    "b32": "{p}[l]",
    "i32": "(i32){p}[l]",
    "f32": "as_f32({p}[l])",
    "mix": "as_f32({p}[l])",
    "u16": "({p}[l] & 0xffff)",
    "i16": "(i32)(i16){p}[l]",
    "f16": "f32_of_f16({p}[l] & 0xffff)",
    "u64": "pair({p}[l], {p}[l + LANES])",
    "i64": "(i64)pair({p}[l], {p}[l + LANES])",
    "f64": "as_f64(pair({p}[l], {p}[l + LANES]))",
    "mask": "{p}[l]",
}
_STORE = {
    "u32": "r[l] = D;",
    "b32": "r[l] = D;",
    "i32": "r[l] = (u32)D;",
    "f32": "r[l] = bits_f32(D);",
    "u16": "r[l] = D & 0xffff;",
    "i16": "r[l] = (u32)D & 0xffff;",
    "f16": "r[l] = f16_of_f32(D);",
    "u64": "r[l] = (u32)D; r[l + LANES] = (u32)(D >> 32);",
    "i64": "r[l] = (u32)D; r[l + LANES] = (u32)((u64)D >> 32);",
    "f64": "u64 bits = bits_f64(D); r[l] = (u32)bits; r[l + LANES] = (u32)(bits >> 32);",
}
_SIGN = {"b32": "0x80000000u", "f32": "0x80000000u", "f16": "0x8000u", "f64": "0x80000000u"}
_SCALAR_LOAD = {
    "u32": "scalar32(w, {o})",
    "i32": "(i32)scalar32(w, {o})",
    "f32": "as_f32(scalar32(w, {o}))",
    "u64": "scalar64(w, {o})",
    "i64": "(i64)scalar64(w, {o})",
}
_SCALAR_STORE = {
    "u32": "put_scalar32(w, &I->d, D);",
    "i32": "put_scalar32(w, &I->d, (u32)D);",
    "f32": "put_scalar32(w, &I->d, bits_f32(D));",
    "u64": "put_scalar64(w, &I->d, D);",
    "i64": "put_scalar64(w, &I->d, (u64)D);",
}


def interpreter(entries: Mapping[str, Entry] = INSTRUCTIONS, variant: Variant = "plain") -> str:
    """The complete C text. LANES has to be defined when it is compiled."""
    handlers = [
        f"/* {name}: {entry.code} */\n{_handler(number, entry)}"
        for number, (name, entry) in enumerate(entries.items())
    ]
    table = ", ".join(f"op{number}" for number in range(len(entries)))
    lookup = f"Handler const handlers[] = {{{table}}};\nHandler handler(u32 opcode) {{ return handlers[opcode]; }}\n"
    before, after = (
        [(NATIVE / name).read_text() for name in names]
        for names in ((*_MACHINE, *_HOOKS[variant], *_MEMORY), _AFTER)
    )
    return "\n".join([*before, *handlers, lookup, *after])


def _handler(number: int, entry: Entry) -> str:
    body = _BODIES[entry.form](entry)
    return f"static void op{number}(Wave *w, const Instruction *I)\n{{\n    (void)I;\n{body}\n}}\n"


def _statement(entry: Entry) -> str:
    """The entry's code with plain variables D, SD, S0 to S3."""
    return re.sub(r"\b(SD|D|S[0-3])\.\w+", r"\1", entry.code) + ";"


def _scalar(entry: Entry) -> str:
    lines = [
        f"const {_C[slot.type]} {slot.name} = {_SCALAR_LOAD[slot.type].format(o=f'&I->s[{slot.source}]')};"
        for slot in entry.sources
    ]
    output = entry.type_of("D")
    if output is None:
        return _indented([*lines, _statement(entry)])
    old = _SCALAR_LOAD[output].format(o="&I->d") if entry.reads_d else "0"
    return _indented([*lines, f"{_C[output]} D = {old};", _statement(entry), _SCALAR_STORE[output]])


def _source_row(slot: Slot) -> list[str]:
    """Row p0 to p3 of a source; the temporary behind it is only used when the source is not a plain row."""
    k, wide = slot.source, int(slot.type in _WIDE)
    special = {"mask": f"source_mask(w, I, {k}, t{k})", "mix": f"source_mix(w, I, {k}, t{k})"}
    row = special.get(slot.type, f"source(w, I, {k}, {_SIGN.get(slot.type, '0')}, {wide}, t{k})")
    return [f"u32 t{k}[{wide + 1} * LANES];", f"const u32 *p{k} = {row};"]


def _vector(entry: Entry) -> str:
    lines = [line for slot in entry.sources for line in _source_row(slot)]
    output, mask = entry.type_of("D"), entry.type_of("SD")
    words = 2 if output in _WIDE else 1
    if entry.reads_d:
        lines.append("const u32 *pd = w->v[I->d.index];")
    loop = [
        f"const {_C[slot.type]} {slot.name} = {_LOAD[slot.type].format(p=f'p{slot.source}')};"
        for slot in entry.sources
    ]
    if output:
        lines.append(f"u32 r[{words} * LANES];")
        loop.append(f"{_C[output]} D" + (f" = {_LOAD[output].format(p='pd')};" if entry.reads_d else ";"))
    if mask:
        lines.append("u32 m[LANES];")
        loop.append("u32 SD;")
    loop += [_statement(entry), *([_STORE[output]] if output else []), *(["m[l] = SD;"] if mask else [])]
    lines += ["EACH_LANE {", *(f"    {line}" for line in loop), "}"]
    if output in {"f32", "f16"}:
        lines.append(f"if (I->clamp | I->omod) modify_{output}(I, r);")
    if output:
        lines.append(f"put_row(w, I, r, {words});")
    if mask:
        lines.append("put_comparison(w, I, m);")
    if any(slot.name == "SD" and slot.implied == "exec" for slot in entry.slots):
        lines.append("EXEC = mask_of_bits(m) & EXEC;")
    return _indented(lines)


def _packed(entry: Entry) -> str:
    wide = entry.type_of("D") == "f32"  # its halves are registers
    lines = ["u32 r[2 * LANES];" if wide else "u32 r[2 * LANES], low[LANES], high[LANES];"]
    for k in (slot.source for slot in entry.sources):
        lines += [f"u32 t{k}[2 * LANES];", f"const u32 *p{k} = source(w, I, {k}, 0, {int(wide)}, t{k});"]
    lines += _packed_half(entry, "op_sel", "neg_lo", "r[l + 0 * LANES]" if wide else "low[l]")
    lines += _packed_half(entry, "op_sel_hi", "neg_hi", "r[l + 1 * LANES]" if wide else "high[l]")
    if entry.type_of("D") == "f16":
        lines.append("if (I->clamp) { modify_f16(I, low); modify_f16(I, high); }")
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
        load = _LOAD[slot.type].replace("{p}[l]", bits)
        loop.append(f"const {_C[slot.type]} {slot.name} = {load};")
    loop += [f"{_C[output]} D;", _statement(entry), _STORE[output].replace("r[l]", result)]
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
