"""Loads, stores and atomics: address spaces times element sizes, under both generations' names."""

from collections.abc import Iterable, Mapping
from typing import Any

from vgpu.emulator.isa.entry import Entry, merged, wave

_CACHE = ("glc", "slc", "dlc", "sc0", "sc1", "nt", "th", "scope")
_ZERO, _SIGN, _LOW, _HIGH = "ZERO_EXTEND", "SIGN_EXTEND", "D16_LOW", "D16_HIGH"

Access = tuple[int, int, str]
"""Bytes of one move, number of moves, and how a move is extended (memory.h)."""

# names of global, scratch and buffer accesses before gfx11 and from gfx11 on, then of LDS accesses
_WORDS: Mapping[str, Access] = {
    "dword b32 b32": (4, 1, _ZERO),
    "dwordx2 b64 b64": (4, 2, _ZERO),
    "dwordx3 b96 b96": (4, 3, _ZERO),
    "dwordx4 b128 b128": (4, 4, _ZERO),
}
_LOADS: Mapping[str, Access] = {
    **_WORDS,
    "ushort u16 u16": (2, 1, _ZERO),
    "ubyte u8 u8": (1, 1, _ZERO),
    "sshort i16 i16": (2, 1, _SIGN),
    "sbyte i8 i8": (1, 1, _SIGN),
    "short_d16 d16_b16 u16_d16": (2, 1, _LOW),
    "short_d16_hi d16_hi_b16 u16_d16_hi": (2, 1, _HIGH),
    "ubyte_d16 d16_u8 u8_d16": (1, 1, _LOW),
    "ubyte_d16_hi d16_hi_u8 u8_d16_hi": (1, 1, _HIGH),
    "sbyte_d16 d16_i8 i8_d16": (1, 1, "D16_LOW_SIGNED"),
    "sbyte_d16_hi d16_hi_i8 i8_d16_hi": (1, 1, "D16_HIGH_SIGNED"),
}
_STORES: Mapping[str, Access] = {
    **_WORDS,
    "short b16 b16": (2, 1, _ZERO),
    "byte b8 b8": (1, 1, _ZERO),
    "short_d16_hi d16_hi_b16 b16_d16_hi": (2, 1, _HIGH),
    "byte_d16_hi d16_hi_b8 b8_d16_hi": (1, 1, _HIGH),
}
_SCALARS = {
    "dword b32": 1,
    "dwordx2 b64": 2,
    "b96": 3,
    "dwordx4 b128": 4,
    "dwordx8 b256": 8,
    "dwordx16 b512": 16,
}


def _names(prefix: str, endings: Iterable[str]) -> str:
    return " ".join(prefix + ending for ending in endings)


def _call(direction: str, access: Access) -> str:
    size, words, extend = access
    return f"(w, I, {direction.upper()}, {size}, {words}, {extend});"


_SPACES = (
    ("global", "S0:v:0", "S2:so:2"),
    ("flat", "S0:v:2", ""),
    ("scratch", "S0:vo:1", "S2:so:1"),
    ("buffer", "S0:vo:1", "S2:s:4 S3:si:1"),
)
"""Space, its address, what follows. Nothing makes flat addresses of LDS or scratch: they are global ones."""


def _vector_memory(direction: str, accesses: Mapping[str, Access]) -> dict[str, Entry]:
    parts = []
    for names, access in accesses.items():
        value = f"{'D' if direction == 'load' else 'S1'}:v:{access[1]}"
        for space, address, rest in _SPACES:
            first = direction == "load" or space == "buffer"  # other stores name their address first
            parts.append(
                wave(
                    _names(f"{space}_{direction}_", names.split()[:2]),
                    f"{space.replace('flat', 'global')}_access{_call(direction, access)}",
                    f"{value} {address} {rest}" if first else f"{address} {value} {rest}",
                    modifiers=("offset", *(("offen",) if space == "buffer" else ()), *_CACHE),
                    rules=("global_address",) if space == "global" else (),
                )
            )
    return merged(*parts)


def _local_memory(old: str, new: str, accesses: Mapping[str, Access]) -> dict[str, Entry]:
    """`old` and `new`: the verb before gfx11 and from gfx11 on."""
    parts, load = [], new == "load"
    for names, access in accesses.items():
        slots = f"D:v:{access[1]} S0:v:1" if load else f"S0:v:1 S1:v:{access[1]}"
        both = _names("ds_", (f"{verb}_{names.split()[2]}" for verb in (old, new)))
        parts.append(wave(both, f"lds_access{_call(new, access)}", slots, modifiers=("offset",)))
    for words in (1, 2):
        slots = f"D:v:{2 * words} S0:v:1" if load else f"S0:v:1 S1:v:{words} S2:v:{words}"
        for short, long, unit in (("2", "_2addr", 1), ("2st64", "_2addr_stride64", 64)):
            both = f"ds_{old}{short}_b{32 * words} ds_{new}{long}_b{32 * words}"
            code = f"lds_access2(w, I, {new.upper()}, {words}, {unit});"
            parts.append(wave(both, code, slots, modifiers=("offset0", "offset1")))
    return merged(*parts)


def _global_to_local() -> dict[str, Entry]:
    """Not of less than a dword: what these write besides their bytes is not verified."""
    return merged(
        *(
            wave(
                f"global_load_lds_{name}",
                f"global_to_lds(w, I, {4 * words});",
                "S0:v:0 S2:so:2",
                modifiers=("offset", *_CACHE),
                archs=archs,
                rules=("global_address",),
            )
            for name, words, archs in (
                ("dword", 1, ("gfx94", "gfx95")),
                ("dwordx3", 3, ("gfx95",)),
                ("dwordx4", 4, ("gfx95",)),
            )
        )
    )


def _scalar_memory() -> dict[str, Entry]:
    return merged(
        *(
            wave(
                _names(prefix, endings.split()),
                f"scalar_load(w, I, {words}, {buffer});",
                f"D:s:{words} S0:s:{base} S1:si:1:offset",
                modifiers=("offset", "glc", "dlc", "scope", "th"),
            )
            for endings, words in _SCALARS.items()
            for prefix, base, buffer in (("s_load_", 2, 0), ("s_buffer_load_", 4, 1))
        ),
        *(
            wave(
                f"s_load_{name}",
                f"scalar_load_small(w, I, {size}, {int(name[0] == 'i')});",
                "D:s:1 S0:s:2 S1:si:1:offset",
                modifiers=("offset", "scope", "th"),
                archs=("gfx12",),
            )
            for name, size in (("u8", 1), ("i8", 1), ("u16", 2), ("i16", 2))
        ),
    )


_INTEGER_ATOMICS = {
    "add add_u": "ADD",
    "sub sub_u": "SUB",
    "swap swap_b": "SWAP",
    "and and_b": "AND",
    "or or_b": "OR",
    "xor xor_b": "XOR",
    "umin min_u": "UMIN",
    "umax max_u": "UMAX",
    "smin min_i": "SMIN",
    "smax max_i": "SMAX",
    "inc inc_u": "INC",
    "dec dec_u": "DEC",
    "cmpswap cmpswap_b": "CMPSWAP",
}
"""Names before gfx11, and from gfx11 on without the number of bits."""
_FLOAT_ATOMICS = {
    "fmin{x2} min_f{bits}": "MIN_F{bits}",
    "fmax{x2} max_f{bits}": "MAX_F{bits}",
    "min_num_f{bits}": "MIN_NUM_F{bits}",
    "max_num_f{bits}": "MAX_NUM_F{bits}",
    "add_f{bits}": "ADD_F{bits}",
}
_PACKED_ATOMICS = {"pk_add_f16": "ADD_PK_F16", "pk_add_bf16": "ADD_PK_BF16"}


def _operations(words: int) -> dict[str, str]:
    bits, x2 = 32 * words, "_x2" if words == 2 else ""
    floats = {
        names.format(bits=bits, x2=x2): operation.format(bits=bits)
        for names, operation in _FLOAT_ATOMICS.items()
    }
    integers = {
        f"{names.split()[0]}{x2} {names.split()[1]}{bits}": operation
        for names, operation in _INTEGER_ATOMICS.items()
    }
    limited = {"csub csub_u32 sub_clamp_u32": "SUB_CLAMP", "cond_sub_u32": "COND_SUB", **_PACKED_ATOMICS}
    return {**integers, **floats, **(limited if words == 1 else {})}


def _atomics() -> dict[str, Entry]:
    """Where a modifier (glc, sc0, TH_ATOMIC_RETURN) requests the old value, a global atomic has a destination
    D before its operands, and a buffer atomic overwrites its data."""
    parts = []
    for words in (1, 2):
        for names, operation in _operations(words).items():
            data = f"S1:v:{2 * words if operation == 'CMPSWAP' else words}"
            parts += [
                wave(
                    _names(f"{space}_atomic_", names.split()),
                    f"atomic_access(w, I, {operation}, {words}, NOT_LDS);",
                    f"D:v?:{words} {address} {data} {base}",
                    modifiers=("offset", *_CACHE),
                    rules=(*rules, "returns_to_d"),
                )
                for space, address, base, rules in (
                    ("global", "S0:v:0", "S2:so:2", ("global_address",)),
                    ("flat", "S0:v:2", "", ()),
                )
            ]
            parts.append(
                wave(
                    _names("buffer_atomic_", names.split()),
                    f"buffer_atomic(w, I, {operation}, {words});",
                    f"{data} S0:vo:1 S2:s:4 S3:si:1",
                    modifiers=("offset", "offen", *_CACHE),
                    rules=("returns_to_data",),
                )
            )
    return merged(*parts)


def _local_atomics() -> dict[str, Entry]:
    parts = []
    for words in (1, 2):
        bits, none = 32 * words, {"SWAP", "CMPSWAP", "SUB_CLAMP", "COND_SUB"}
        names = {all_.split()[-1]: code for all_, code in _operations(words).items() if code not in none}
        names |= {f"rsub_u{bits}": "RSUB", f"cmpst_b{bits}": "CMPSWAP", f"cmpstore_b{bits}": "CMPSWAP"}
        names |= {"sub_clamp_u32": "SUB_CLAMP", "cond_sub_u32": "COND_SUB"} if words == 1 else {}
        for name, operation in names.items():
            stem, _, kind = name.rpartition("_")
            order = "COMPARES_FIRST" if stem == "cmpst" else "OF_LDS"
            code = f"atomic_access(w, I, {operation}, {words}, {order});"
            slots = f"S0:v:1 S1:v:{words}" + f" S2:v:{words}" * (operation == "CMPSWAP")
            returning: dict[str, Any] = {"modifiers": ("offset",), "rules": ("returns_to_d",)}
            parts.append(wave(f"ds_{name}", code, slots, modifiers=("offset",)))
            parts.append(wave(f"ds_{stem}_rtn_{kind}", code, f"D:v:{words} {slots}", **returning))
        exchange = f"ds_wrxchg_rtn_b{bits} ds_storexchg_rtn_b{bits}"
        code = f"atomic_access(w, I, SWAP, {words}, OF_LDS);"
        parts.append(wave(exchange, code, f"D:v:{words} S0:v:1 S1:v:{words}", **returning))
    return merged(*parts)


TABLE = merged(
    _vector_memory("load", _LOADS),
    _vector_memory("store", _STORES),
    _local_memory("read", "load", _LOADS),
    _local_memory("write", "store", _STORES),
    _global_to_local(),
    _scalar_memory(),
    _atomics(),
    _local_atomics(),
)
