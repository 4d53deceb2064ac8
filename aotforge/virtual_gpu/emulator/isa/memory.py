"""Loads, stores and atomics: address spaces times element sizes, under both generations' names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aotforge.virtual_gpu.emulator.isa.entry import Entry, merged, wave

_CACHE = ("glc", "slc", "dlc", "sc0", "sc1", "nt", "th", "scope")


@dataclass(frozen=True, kw_only=True)
class Access:
    """One element: `words` moves of `bytes` each; `extend` as in memory.h."""

    bytes: int
    words: int = 1
    extend: str = "ZERO_EXTEND"


_LOADS: Mapping[str, Access] = {
    "dword b32": Access(bytes=4),
    "dwordx2 b64": Access(bytes=4, words=2),
    "dwordx3 b96": Access(bytes=4, words=3),
    "dwordx4 b128": Access(bytes=4, words=4),
    "ushort u16": Access(bytes=2),
    "ubyte u8": Access(bytes=1),
    "sshort i16": Access(bytes=2, extend="SIGN_EXTEND"),
    "sbyte i8": Access(bytes=1, extend="SIGN_EXTEND"),
    "short_d16 d16_b16": Access(bytes=2, extend="D16_LOW"),
    "short_d16_hi d16_hi_b16": Access(bytes=2, extend="D16_HIGH"),
    "ubyte_d16 d16_u8": Access(bytes=1, extend="D16_LOW"),
    "ubyte_d16_hi d16_hi_u8": Access(bytes=1, extend="D16_HIGH"),
}
_STORES: Mapping[str, Access] = {
    "dword b32": Access(bytes=4),
    "dwordx2 b64": Access(bytes=4, words=2),
    "dwordx3 b96": Access(bytes=4, words=3),
    "dwordx4 b128": Access(bytes=4, words=4),
    "short b16": Access(bytes=2),
    "byte b8": Access(bytes=1),
    "short_d16_hi d16_hi_b16": Access(bytes=2, extend="D16_HIGH"),
    "byte_d16_hi d16_hi_b8": Access(bytes=1, extend="D16_HIGH"),
}
_LDS: Mapping[str, Access] = {
    "b32": Access(bytes=4),
    "b64": Access(bytes=4, words=2),
    "b96": Access(bytes=4, words=3),
    "b128": Access(bytes=4, words=4),
    "u16": Access(bytes=2),
    "u8": Access(bytes=1),
    "i16": Access(bytes=2, extend="SIGN_EXTEND"),
    "i8": Access(bytes=1, extend="SIGN_EXTEND"),
    "u16_d16": Access(bytes=2, extend="D16_LOW"),
    "u16_d16_hi": Access(bytes=2, extend="D16_HIGH"),
    "u8_d16": Access(bytes=1, extend="D16_LOW"),
    "u8_d16_hi": Access(bytes=1, extend="D16_HIGH"),
}
_LDS_STORES: Mapping[str, Access] = {
    "b32": Access(bytes=4),
    "b64": Access(bytes=4, words=2),
    "b96": Access(bytes=4, words=3),
    "b128": Access(bytes=4, words=4),
    "b16": Access(bytes=2),
    "b8": Access(bytes=1),
    "b16_d16_hi": Access(bytes=2, extend="D16_HIGH"),
    "b8_d16_hi": Access(bytes=1, extend="D16_HIGH"),
}
_WIDTHS = {
    "dword b32": 1,
    "dwordx2 b64": 2,
    "b96": 3,
    "dwordx4 b128": 4,
    "dwordx8 b256": 8,
    "dwordx16 b512": 16,
}


def _call(function: str, direction: str, access: Access) -> str:
    return f"{function}(w, I, {direction}, {access.bytes}, {access.words}, {access.extend});"


def _vector_memory() -> dict[str, Entry]:
    parts = []
    for direction, accesses in (("LOAD", _LOADS), ("STORE", _STORES)):
        data = "D" if direction == "LOAD" else "S1"
        for endings, access in accesses.items():
            for verb in (f"{direction.lower()}_{ending}" for ending in endings.split()):
                value = f"{data}:v:{access.words}"
                order = f"{value} {{address}}" if direction == "LOAD" else f"{{address}} {value}"
                flat = order.format(address="S0:v:0") + " S2:so:2"
                scratch = order.format(address="S0:vo:1") + " S2:so:1"
                parts += [
                    wave(
                        f"global_{verb}",
                        _call("global_access", direction, access),
                        flat,
                        modifiers=("offset", *_CACHE),
                    ),
                    wave(
                        f"scratch_{verb}",
                        _call("scratch_access", direction, access),
                        scratch,
                        modifiers=("offset", *_CACHE),
                    ),
                    wave(
                        f"buffer_{verb}",
                        _call("buffer_access", direction, access),
                        f"{value} S0:vo:1 S2:s:4 S3:si:1",
                        modifiers=("offset", "offen", *_CACHE),
                    ),
                ]
    return merged(*parts)


def _local_memory() -> dict[str, Entry]:
    parts = []
    for verbs, direction, accesses in (("read load", "LOAD", _LDS), ("write store", "STORE", _LDS_STORES)):
        for ending, access in accesses.items():
            value = f"{'D' if direction == 'LOAD' else 'S1'}:v:{access.words}"
            slots = f"{value} S0:v:1" if direction == "LOAD" else f"S0:v:1 {value}"
            names = " ".join(f"ds_{verb}_{ending}" for verb in verbs.split())
            parts.append(wave(names, _call("lds_access", direction, access), slots, modifiers=("offset",)))
        for words in (1, 2):
            for old, new, unit in (("2", "_2addr", 1), ("2st64", "_2addr_stride64", 64)):
                first, second = (verb for verb in verbs.split())
                names = f"ds_{first}{old}_b{32 * words} ds_{second}{new}_b{32 * words}"
                slots = (
                    f"D:v:{2 * words} S0:v:1" if direction == "LOAD" else f"S0:v:1 S1:v:{words} S2:v:{words}"
                )
                code = f"lds_access2(w, I, {direction}, {words}, {unit});"
                parts.append(wave(names, code, slots, modifiers=("offset0", "offset1")))
    return merged(*parts)


def _scalar_memory() -> dict[str, Entry]:
    parts = []
    for endings, words in _WIDTHS.items():
        for ending in endings.split():
            slots = f"D:s:{words} S0:s:{{}} S1:si:1"
            allowed = ("offset", "glc", "dlc", "scope", "th")
            parts += [
                wave(
                    f"s_load_{ending}", f"scalar_load(w, I, {words}, 0);", slots.format(2), modifiers=allowed
                ),
                wave(
                    f"s_buffer_load_{ending}",
                    f"scalar_load(w, I, {words}, 1);",
                    slots.format(4),
                    modifiers=allowed,
                ),
            ]
    return merged(*parts)


_ATOMICS = {
    "add add_u32": "ADD",
    "sub sub_u32": "SUB",
    "swap swap_b32": "SWAP",
    "and and_b32": "AND",
    "or or_b32": "OR",
    "xor xor_b32": "XOR",
    "umin min_u32": "UMIN",
    "umax max_u32": "UMAX",
    "smin min_i32": "SMIN",
    "smax max_i32": "SMAX",
    "add_f32": "ADD_F32",
    "pk_add_f16": "ADD_PK_F16",
    "pk_add_bf16": "ADD_PK_BF16",
}
_ATOMICS_64 = {
    "add_x2 add_u64": "ADD",
    "swap_x2 swap_b64": "SWAP",
    "and_x2 and_b64": "AND",
    "or_x2 or_b64": "OR",
}
_LDS_ATOMICS = {
    "add_u32": "ADD", "sub_u32": "SUB", "and_b32": "AND", "or_b32": "OR", "xor_b32": "XOR", "min_u32": "UMIN",
    "max_u32": "UMAX", "min_i32": "SMIN", "max_i32": "SMAX", "add_f32": "ADD_F32",
}  # fmt: skip


_COMPARE_AND_SWAP = {1: "cmpswap cmpswap_b32", 2: "cmpswap_x2 cmpswap_b64"}


def _atomics() -> dict[str, Entry]:
    """Whether the old value comes back is a modifier (glc, sc0, TH_ATOMIC_RETURN). Then a global atomic has a destination, D,
    that stands first, and a buffer atomic puts it over its data.
    """
    parts = []
    for words, operations in ((1, _ATOMICS), (2, _ATOMICS_64)):
        for names, operation in {**operations, _COMPARE_AND_SWAP[words]: "CMPSWAP"}.items():
            data = f"S1:v:{2 * words if operation == 'CMPSWAP' else words}"
            parts.append(
                wave(
                    " ".join(f"global_atomic_{name}" for name in names.split()),
                    f"atomic_access(w, I, {operation}, {words}, 0);",
                    f"D:v?:{words} S0:v:0 {data} S2:so:2",
                    modifiers=("offset", *_CACHE),
                )
            )
            parts.append(
                wave(
                    " ".join(f"buffer_atomic_{name}" for name in names.split()),
                    f"buffer_atomic(w, I, {operation}, {words});",
                    f"{data} S0:vo:1 S2:s:4 S3:si:1",
                    modifiers=("offset", "offen", *_CACHE),
                )
            )
    return merged(*parts)


def _local_atomics() -> dict[str, Entry]:
    parts = []
    for name, operation in _LDS_ATOMICS.items():
        code = f"atomic_access(w, I, {operation}, 1, 1);"
        stem, _, kind = name.rpartition("_")
        parts.append(wave(f"ds_{name}", code, "S0:v:1 S1:v:1", modifiers=("offset",)))
        parts.append(wave(f"ds_{stem}_rtn_{kind}", code, "D:v:1 S0:v:1 S1:v:1", modifiers=("offset",)))
    return merged(*parts)


TABLE = merged(_vector_memory(), _local_memory(), _scalar_memory(), _atomics(), _local_atomics())
