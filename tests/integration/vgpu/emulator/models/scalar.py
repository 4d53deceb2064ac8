"""Models of scalar instructions on Python's integers: (sources..., SCC) to (result, SCC); None where nothing
is written.

Sources arrive as the slot's type has them: signed for i32 and i64, numpy's floats for f32 and f16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.integration.vgpu.emulator.models.vector import MODELS as VECTOR

Model = Callable[..., tuple[Any, int | None]]
M32, M64 = 2**32, 2**64


def signed(x: int, bits: int = 32) -> int:
    x %= 1 << bits
    return x - (1 << bits) if x >> (bits - 1) else x


def total(a: int, b: int, scc: int) -> tuple[int, int]:
    return (a + b) % M32, int(a + b >= M32)


def overflowing(function: Callable[[int, int], int]) -> Model:
    def model(a: int, b: int, scc: int) -> tuple[int, int]:
        exact = function(signed(a), signed(b))
        return exact % M32, int(not -(2**31) <= exact < 2**31)

    return model


def nonzero(function: Callable[..., int], bits: int = 32) -> Model:
    def model(*args: int) -> tuple[int, int]:
        result = function(*args[:-1]) % (1 << bits)
        return result, int(result != 0)

    return model


def silent(function: Callable[..., Any]) -> Model:
    return lambda *args: (function(*args[:-1]), None)


def shifted(n: int) -> Model:
    def model(a: int, b: int, scc: int) -> tuple[int, int]:
        exact = (a << n) + b
        return exact % M32, int(exact >= M32)

    return model


def pick(better: Callable[[int, int], bool]) -> Model:
    return lambda a, b, scc: (a if better(a, b) else b, int(better(a, b)))


def field(a: int, what: int) -> int:
    offset, width = what % 32, what >> 16 & 127
    return (a >> offset) & ((1 << width) - 1)


def signed_field(a: int, what: int) -> int:
    offset, width = what % 32, what >> 16 & 127
    if width == 0:
        return 0
    return signed(a >> offset, min(width, 32)) if width < 32 else a >> offset


def signed_field64(a: int, what: int) -> int:
    offset, width = what % 64, what >> 16 & 127
    return signed(a >> offset, width) if 0 < width < 64 else a >> offset if width else 0


def leading(bits: int) -> Callable[[int], int]:
    return lambda a: bits - a.bit_length() if a else -1


def trailing(a: int) -> int:
    return (a & -a).bit_length() - 1 if a else -1


def both(**lines: Model) -> dict[str, Model]:
    return {name.replace("__", " "): model for name, model in lines.items()}


MODELS: dict[str, Model] = {}


def define(names: str, model: Model) -> None:
    for name in names.split():
        MODELS[name] = model


define("s_add_u32 s_add_co_u32", total)
define("s_sub_u32 s_sub_co_u32", lambda a, b, scc: ((a - b) % M32, int(b > a)))
define("s_addc_u32 s_add_co_ci_u32", lambda a, b, scc: ((a + b + scc) % M32, int(a + b + scc >= M32)))
define("s_subb_u32 s_sub_co_ci_u32", lambda a, b, scc: ((a - b - scc) % M32, int(b + scc > a)))
define("s_add_i32 s_add_co_i32", overflowing(lambda a, b: a + b))
define("s_sub_i32 s_sub_co_i32", overflowing(lambda a, b: a - b))
define("s_addk_i32 s_addk_co_i32", lambda k, old, scc: overflowing(lambda a, b: a + b)(old, k, scc))
define("s_add_nc_u64 s_add_u64", silent(lambda a, b: (a + b) % M64))
define("s_sub_nc_u64 s_sub_u64", silent(lambda a, b: (a - b) % M64))
for _n in range(1, 5):
    define(f"s_lshl{_n}_add_u32", shifted(_n))
define("s_mul_i32", silent(lambda a, b: a * b % M32))
define("s_mulk_i32", silent(lambda k, old: old * k % M32))
define("s_mul_hi_u32", silent(lambda a, b: a * b >> 32))
define("s_mul_hi_i32", silent(lambda a, b: a * b >> 32))
define("s_mul_u64", silent(lambda a, b: a * b % M64))
define("s_min_i32 s_min_u32", pick(lambda a, b: a < b))
define("s_max_i32 s_max_u32", lambda a, b, scc: (max(a, b), int(a >= b)))
define("s_abs_i32", nonzero(lambda a: abs(signed(a))))
define("s_absdiff_i32", nonzero(lambda a, b: abs(signed(a - b))))
define("s_mov_b32 s_movk_i32 s_mov_b64", silent(lambda a: a))
define("s_cmov_b32 s_cmov_b64 s_cmovk_i32", lambda a, old, scc: (a if scc else old, None))
define("s_cselect_b32 s_cselect_b64", lambda a, b, scc: (a if scc else b, None))
define("s_not_b32", nonzero(lambda a: ~a))
define("s_not_b64", nonzero(lambda a: ~a, 64))
define("s_brev_b64", silent(lambda a: int(f"{a:064b}"[::-1], 2)))
define("s_brev_b32", silent(lambda a: int(f"{a:032b}"[::-1], 2)))
define("s_sext_i32_i8", silent(lambda a: signed(a, 8)))
define("s_sext_i32_i16", silent(lambda a: signed(a, 16)))
define("s_pack_ll_b32_b16", silent(lambda a, b: a % 65536 + b % 65536 * 65536))
define("s_pack_lh_b32_b16", silent(lambda a, b: a % 65536 + b // 65536 * 65536))
define("s_pack_hl_b32_b16", silent(lambda a, b: a // 65536 + b % 65536 * 65536))
define("s_pack_hh_b32_b16", silent(lambda a, b: a // 65536 + b // 65536 * 65536))
define("s_bcnt1_i32_b32 s_bcnt1_i32_b64", nonzero(lambda a: bin(a).count("1")))
define("s_bcnt0_i32_b32", nonzero(lambda a: f"{a:032b}".count("0")))
define("s_bcnt0_i32_b64", nonzero(lambda a: f"{a:064b}".count("0")))
define("s_ff0_i32_b32", silent(lambda a: f"{a:032b}"[::-1].find("0")))
define("s_ff0_i32_b64", silent(lambda a: f"{a:064b}"[::-1].find("0")))
define("s_ff1_i32_b32 s_ctz_i32_b32 s_ff1_i32_b64 s_ctz_i32_b64", silent(trailing))
define("s_flbit_i32_b32 s_clz_i32_u32", silent(leading(32)))
define("s_flbit_i32 s_cls_i32", silent(lambda a: f"{a:032b}".find("1" if a < 2**31 else "0")))
define("s_flbit_i32_i64 s_cls_i32_i64", silent(lambda a: f"{a:064b}".find("1" if a < 2**63 else "0")))
define("s_flbit_i32_b64 s_clz_i32_u64", silent(leading(64)))

_BITWISE: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "andn2": lambda a, b: a & ~b,
    "and_not1": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b,
    "or_not1": lambda a, b: a | ~b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
}
for _name, _function in _BITWISE.items():
    define(f"s_{_name}_b32", nonzero(_function))
    define(f"s_{_name}_b64", nonzero(_function, 64))

define("s_lshl_b32", nonzero(lambda a, n: a << n % 32))
define("s_lshr_b32", nonzero(lambda a, n: a >> n % 32))
define("s_ashr_i32", nonzero(lambda a, n: a >> n % 32))
define("s_lshl_b64", nonzero(lambda a, n: a << n % 64, 64))
define("s_lshr_b64", nonzero(lambda a, n: a >> n % 64, 64))
define("s_ashr_i64", nonzero(lambda a, n: a >> n % 64, 64))
define("s_bfe_u32", nonzero(field))
define("s_bfe_i32", nonzero(signed_field))
define("s_bfe_u64", nonzero(lambda a, what: (a >> what % 64) & ((1 << (what >> 16 & 127)) - 1), 64))
define("s_bfe_i64", nonzero(signed_field64, 64))
define("s_bfm_b64", silent(lambda n, o: ((1 << n % 64) - 1 << o % 64) % M64))
define("s_bitset0_b64", silent(lambda n, old: old & ~(1 << n % 64)))
define("s_bitset1_b64", silent(lambda n, old: old | 1 << n % 64))
define("s_bitcmp0_b64", lambda a, n, scc: (None, int(not a >> n % 64 & 1)))
define("s_bitcmp1_b64", lambda a, n, scc: (None, a >> n % 64 & 1))
define("s_bfm_b32", silent(lambda n, o: ((1 << n % 32) - 1 << o % 32) % M32))
define("s_bitset0_b32", silent(lambda n, old: old & ~(1 << n % 32)))
define("s_bitset1_b32", silent(lambda n, old: old | 1 << n % 32))
define("s_bitcmp0_b32", lambda a, n, scc: (None, int(not a >> n % 32 & 1)))
define("s_bitcmp1_b32", lambda a, n, scc: (None, a >> n % 32 & 1))

_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}


def compared(relation: Callable[[Any, Any], bool]) -> Model:
    return lambda a, b, scc: (None, int(relation(a, b)))


for _name, _relation in _RELATIONS.items():
    for _type in ("i32", "u32"):
        define(f"s_cmp_{_name}_{_type} s_cmpk_{_name}_{_type}", compared(_relation))
    if _name in {"eq", "lg"}:
        define(f"s_cmp_{_name}_u64", compared(_relation))


def through_vector(name: str) -> Model:
    """The vector instruction of the same meaning has a model for arrays."""

    def model(*args: Any) -> tuple[Any, int | None]:
        with np.errstate(all="ignore"):
            result = VECTOR[name](*[np.array([x]) for x in args[:-1]])[0]
        return (None, int(result)) if name.startswith("v_cmp_") else (result, None)

    return model


def high_half(x: int) -> Any:
    return np.array([x >> 16], dtype=np.uint16).view(np.float16).astype(np.float32)[0]


_SAME_NAMES = "add sub mul min max min_num max_num minimum maximum trunc floor ceil rndne fmac"
_FLOAT_RELATIONS = "lt eq le gt ge lg o u nge nlg ngt nle neq nlt"
for _type in ("f32", "f16"):
    for _name in _SAME_NAMES.split():
        define(f"s_{_name}_{_type}", through_vector(f"v_{_name}_{_type}"))
    for _name in _FLOAT_RELATIONS.split():
        define(f"s_cmp_{_name}_{_type}", through_vector(f"v_cmp_{_name}_{_type}"))
    for _name in ("exp", "log", "rcp", "rsq", "sqrt"):
        define(f"v_s_{_name}_{_type}", through_vector(f"v_{_name}_{_type}"))
define("s_fmamk_f32 s_fmaak_f32", through_vector("v_fma_f32"))
for _name in ("f16_f32", "f32_f16", "i32_f32", "u32_f32", "pk_rtz_f16_f32"):
    define(f"s_cvt_{_name}", through_vector(f"v_cvt_{_name}"))
define("s_cvt_f32_i32 s_cvt_f32_u32", silent(np.float32))
define("s_cvt_hi_f32_f16", silent(high_half))

SAVE_EXEC: dict[str, Callable[[int, int], int]] = {
    "and": lambda s, e: s & e,
    "or": lambda s, e: s | e,
    "xor": lambda s, e: s ^ e,
    "andn2": lambda s, e: s & ~e,
    "and_not1": lambda s, e: s & ~e,
    "orn2": lambda s, e: s | ~e,
    "andn1": lambda s, e: ~s & e,
    "and_not0": lambda s, e: ~s & e,
    "or_not1": lambda s, e: s | ~e,
    "orn1": lambda s, e: ~s | e,
    "or_not0": lambda s, e: ~s | e,
    "nand": lambda s, e: ~(s & e),
    "nor": lambda s, e: ~(s | e),
    "xnor": lambda s, e: ~(s ^ e),
}
