"""Operands of AMDGPU assembly: text to `Operand`. What is not understood is an error, never a guess."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from aotforge.errors import DecodeError
from aotforge.virtual_gpu.emulator.decoded import Operand

_SPECIAL = {
    "vcc": (106, 2), "vcc_lo": (106, 1), "vcc_hi": (107, 1),
    "exec": (126, 2), "exec_lo": (126, 1), "exec_hi": (127, 1),
    "m0": (125, 1), "null": (124, 1),
    "flat_scratch": (102, 2), "flat_scratch_lo": (102, 1), "flat_scratch_hi": (103, 1),
    "xnack_mask": (104, 2), "xnack_mask_lo": (104, 1), "xnack_mask_hi": (105, 1),
}  # fmt: skip
_STATUS = {"scc": 0, "src_scc": 0, "vccz": 1, "src_vccz": 1, "execz": 2, "src_execz": 2}
_ONE = re.compile(r"(v|s|a|ttmp)(\d+)(?:\.([lh]))?$")
_SEVERAL = re.compile(r"(v|s|a|ttmp)\[(\d+)(?::(\d+))?\](?:\.([lh]))?$")
_INTEGER = re.compile(r"-?(0x[0-9a-f]+|\d+)$")
_REAL = re.compile(r"-?\d+\.\d*(e[-+]?\d+)?$")
_WRAPPED = re.compile(r"(neg|abs|sext)\((.*)\)$")
_BASE = {
    "v": ("vector", 0, 256),
    "a": ("vector", 256, 256),
    "s": ("scalar", 0, 106),
    "ttmp": ("scalar", 108, 16),
}


@lru_cache(maxsize=4096)
def operand(text: str) -> Operand:
    """Parse one operand. Raises DecodeError."""
    inner, flags = _unwrapped(text)
    found = _register(inner) or _named(inner) or _number(inner)
    if found is None:
        raise DecodeError(f"unknown operand {text!r}", cause="the decoder knows no such register or number")
    return replace(
        found,
        text=text,
        neg=flags.count("neg") % 2 == 1,
        abs="abs" in flags,
        sext="sext" in flags,
    )


def _unwrapped(text: str) -> tuple[str, list[str]]:
    """The operand without its modifiers: -x, |x|, neg(x), abs(x), sext(x). Only -|x| nests."""
    flags: list[str] = []
    while True:
        if wrapped := _WRAPPED.match(text):
            flags.append(wrapped[1])
            text = wrapped[2]
        elif text.startswith("-") and not text[1:2].isdigit():
            flags.append("neg")
            text = text[1:]
        elif text.startswith("|") and text.endswith("|") and len(text) > 2:
            flags.append("abs")
            text = text[1:-1]
        else:
            break
    if flags not in ([], ["neg"], ["abs"], ["sext"], ["neg", "abs"]):
        raise DecodeError(f"unknown combination of operand modifiers in {text!r}")
    return text, flags


def _register(text: str) -> Operand | None:
    if one := _ONE.match(text):
        file, first, last, half = one[1], int(one[2]), int(one[2]), one[3]
    elif several := _SEVERAL.match(text):
        file, first, half = several[1], int(several[2]), several[4]
        last = int(several[3]) if several[3] else first
    else:
        return None
    space, base, size = _BASE[file]
    if last < first or last >= size:
        raise DecodeError(f"no such register: {text}")
    return Operand(
        text=text,
        space="vector" if space == "vector" else "scalar",
        index=base + first,
        words=last - first + 1,
        half=None if half is None else int(half == "h"),
    )


def _named(text: str) -> Operand | None:
    if text in _SPECIAL:
        index, words = _SPECIAL[text]
        return Operand(text=text, space="scalar", index=index, words=words)
    if text in _STATUS:
        return Operand(text=text, space="status", index=_STATUS[text])
    if text == "off":
        return Operand(text=text, space="none", words=0)
    return None


def _number(text: str) -> Operand | None:
    if _INTEGER.match(text):
        return Operand(text=text, space="constant", integer=int(text, 0), hexadecimal="0x" in text)
    if _REAL.match(text):
        return Operand(text=text, space="constant", real=float(text))
    return None
