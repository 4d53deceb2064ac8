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
from aotforge.virtual_gpu.emulator.isa.entry import Entry

NATIVE = Path(__file__).parent / "native"
_MACHINE = ("machine.h", "arithmetic.h", "transcendental.h", "operands.h")
_MEMORY = ("memory.h", "lanes.h", "matrix.h")
_AFTER = ("run.h", "serve_abi.h", "serve.h")

Variant = Literal["plain", "checks", "measure"]
"""What the interpreter looks at while it executes; each has headers in `native/` with the hooks that `plain.h` describes."""
_HOOKS: Mapping[Variant, tuple[str, ...]] = {
    "plain": ("plain.h",),
    "checks": tuple(f"checks/{part}.h" for part in ("state", "waits", "races", "twins", "barriers", "hooks")),
    "measure": ("measure.h",),
}

OPCODES: Mapping[str, int] = MappingProxyType({name: number for number, name in enumerate(INSTRUCTIONS)})

_C = {
    "u32": "u32", "b32": "u32", "i32": "i32", "f32": "float", "u16": "u32", "i16": "i32", "f16": "float", "mix": "float",
    "u64": "u64", "i64": "i64", "f64": "double", "mask": "u32",
}  # fmt: skip
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
    """The whole C text. LANES has to be defined when it is compiled."""
    parts = [(NATIVE / name).read_text() for name in (*_MACHINE, *_HOOKS[variant], *_MEMORY)]
    names = list(entries)
    parts += [
        f"/* {name}: {entries[name].code} */\n{_handler(number, entries[name])}"
        for number, name in enumerate(names)
    ]
    table = ", ".join(f"op{number}" for number in range(len(names)))
    parts.append(
        f"Handler const handlers[] = {{{table}}};\nHandler handler(u32 opcode) {{ return handlers[opcode]; }}\n"
    )
    parts += [(NATIVE / name).read_text() for name in _AFTER]
    return "\n".join(parts)


def _handler(number: int, entry: Entry) -> str:
    body = _BODIES[entry.form](entry)
    return f"static void op{number}(Wave *w, const Instruction *I)\n{{\n    (void)I;\n{body}\n}}\n"


def _statement(entry: Entry) -> str:
    """The entry's code with plain variables D, SD, S0 to S3."""
    return re.sub(r"\b(SD|D|S[0-3])\.\w+", r"\1", entry.code) + ";"


def _scalar(entry: Entry) -> str:
    lines = []
    for slot in entry.slots:
        if slot.place.startswith("S"):
            o = f"&I->s[{slot.place[1]}]"
            lines.append(f"const {_C[slot.type]} {slot.place} = {_SCALAR_LOAD[slot.type].format(o=o)};")
    output = entry.type_of("D")
    if output:
        old = _SCALAR_LOAD[output].format(o="&I->d") if entry.reads_d else "0"
        lines.append(f"{_C[output]} D = {old};")
    lines.append(_statement(entry))
    if output:
        lines.append(_SCALAR_STORE[output])
    return _indented(lines)


def _sources(entry: Entry) -> list[str]:
    """Rows p0 to p3 of the sources; the temporary behind each is only used when a source is no plain row."""
    lines = []
    for slot in entry.slots:
        if slot.place not in {"S0", "S1", "S2", "S3"}:
            continue
        k, wide = slot.place[1], int(slot.type in _WIDE)
        lines.append(f"u32 t{k}[{wide + 1} * LANES];")
        if slot.type == "mask":
            lines.append(f"const u32 *p{k} = source_mask(w, I, {k}, t{k});")
        elif slot.type == "mix":
            lines.append(f"const u32 *p{k} = source_mix(w, I, {k}, t{k});")
        else:
            lines.append(f"const u32 *p{k} = source(w, I, {k}, {_SIGN.get(slot.type, '0')}, {wide}, t{k});")
    return lines


def _vector(entry: Entry) -> str:
    lines = _sources(entry)
    output, mask = entry.type_of("D"), entry.type_of("SD")
    if entry.reads_d:
        lines.append("const u32 *pd = w->v[I->d.index];")
    loop = []
    for slot in entry.slots:
        if slot.place in {"S0", "S1", "S2", "S3"}:
            loop.append(
                f"const {_C[slot.type]} {slot.place} = {_LOAD[slot.type].format(p='p' + slot.place[1])};"
            )
    if output:
        lines.append(f"u32 r[{2 if output in _WIDE else 1} * LANES];")
        loop.append(f"{_C[output]} D" + (f" = {_LOAD[output].format(p='pd')};" if entry.reads_d else ";"))
    if mask:
        lines.append("u32 m[LANES];")
        loop.append("u32 SD;")
    loop.append(_statement(entry))
    loop += [_STORE[output]] if output else []
    loop += ["m[l] = SD;"] if mask else []
    lines += ["EACH_LANE {", *(f"    {line}" for line in loop), "}"]
    if output:
        if output in {"f32", "f16"}:
            lines.append(f"if (I->clamp | I->omod) modify_{output}(I, r);")
        lines.append(f"put_row(w, I, r, {2 if output in _WIDE else 1});")
    if mask:
        lines.append("put_comparison(w, I, m);")
        if entry.name.startswith("v_cmpx"):
            lines.append("EXEC = mask_of_bits(m) & EXEC;")
    return _indented(lines)


def _packed(entry: Entry) -> str:
    output = entry.type_of("D")
    words = output == "f32"  # halves are whole registers
    lines = ["u32 r[2 * LANES], low[LANES], high[LANES];"] if not words else ["u32 r[2 * LANES];"]
    places = [slot.place[1] for slot in entry.slots if slot.place != "D"]
    for k in places:
        lines += [f"u32 t{k}[2 * LANES];", f"const u32 *p{k} = source(w, I, {k}, 0, {int(words)}, t{k});"]
    for half, sel, neg, target in ((0, "op_sel", "neg_lo", "low"), (1, "op_sel_hi", "neg_hi", "high")):
        lines.append("{")
        for k in places:
            if words:
                lines.append(f"    const u32 *q{k} = p{k} + (I->{sel} >> {k} & 1 ? LANES : 0);")
            else:
                lines.append(f"    const u32 h{k} = I->{sel} >> {k} & 1 ? 16 : 0;")
            if output and output[0] == "f":
                sign = "0x80000000u" if words else "0x8000u"
                lines.append(f"    const u32 n{k} = I->{neg} >> {k} & 1 ? {sign} : 0;")
        lines.append("    EACH_LANE {")
        for slot in entry.slots:
            if slot.place == "D":
                continue
            k = slot.place[1]
            raw = f"q{k}[l]" if words else f"(p{k}[l] >> h{k} & 0xffff)"
            raw = f"({raw} ^ n{k})" if output and output[0] == "f" else raw
            load = _LOAD[slot.type].replace("{p}[l]", raw)
            lines.append(f"        const {_C[slot.type]} {slot.place} = {load};")
        store = _STORE[output or "u32"].replace("r[l]", f"r[l + {half} * LANES]" if words else f"{target}[l]")
        lines += [
            f"        {_C[output or 'u32']} D;",
            f"        {_statement(entry)}",
            f"        {store}",
            "    }",
            "}",
        ]
    if output == "f16":
        lines.append("if (I->clamp) { modify_f16(I, low); modify_f16(I, high); }")
    if not words:
        lines.append("EACH_LANE r[l] = low[l] | high[l] << 16;")
    lines.append(f"put_row(w, I, r, {2 if words else 1});")
    return _indented(lines)


def _indented(lines: list[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


_BODIES: Mapping[str, Callable[[Entry], str]] = {
    "scalar": _scalar,
    "vector": _vector,
    "packed": _packed,
    "wave": lambda entry: entry.code,
}
