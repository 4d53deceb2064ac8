"""Floats of 8 and 16 bits: decoding to float32, rounding of float32, encoding."""

from __future__ import annotations

from dataclasses import dataclass

from .element_types import Element
from .llvm_ir import Builder, Value, element_of, integer, lanes_of, real


@dataclass(frozen=True)
class Small:
    """An 8-bit format. `largest`, `nan`: codes (None: IEEE's rules); `zeros` is 1 without -0."""

    exponent: int
    mantissa: int
    bias: int
    largest: int
    nan: int | None
    zeros: int = 2


_SMALL = {
    "f8E5M2": Small(5, 2, 15, 0x7B, None),
    "f8E4M3FN": Small(4, 3, 7, 0x7E, 0x7F),
    "f8E4M3FNUZ": Small(4, 3, 8, 0x7F, 0x80, 1),
    "f8E5M2FNUZ": Small(5, 2, 16, 0x7F, 0x80, 1),
    "f8E4M3B11FNUZ": Small(4, 3, 11, 0x7F, 0x80, 1),
}


def decode(b: Builder, element: Element, bits: Value) -> Value:
    """Float32 of the numbers in memory, which are integers of the element's width."""
    if element.name == "f16":
        return b.cast("fpext", b.cast("bitcast", bits, "half"), "float")
    if element.name == "bf16":
        return b.cast("bitcast", _shift(b, "shl", b.cast("zext", bits, "i32"), 16), "float")
    small = _SMALL[element.name]
    word = b.cast("zext", bits, "i32")
    magnitude = _shift(b, "shl", _mask(b, word, 0x7F), 23 - small.mantissa)
    # the exponent field read as float32's is too small by the difference of the biases; the product is exact,
    # subnormals too
    value = b.binary(
        "fmul", b.cast("bitcast", magnitude, "float"), _all(b, real(2.0 ** (127 - small.bias)), bits)
    )
    if small.nan is None:
        special = b.compare("icmp uge", _mask(b, word, 0x7F), _like(b, 0x7C, word))
        infinite = b.cast("bitcast", b.binary("or", magnitude, _like(b, 0x7F800000, word)), "float")
        value = b.select(special, infinite, value)
    sign = _shift(b, "shl", _mask(b, word, 0x80), 24)
    value = b.cast("bitcast", b.binary("or", b.cast("bitcast", value, "i32"), sign), "float")
    if small.nan is not None:
        code = word if small.nan == 0x80 else _mask(b, word, 0x7F)
        value = b.select(
            b.compare("icmp eq", code, _like(b, small.nan, word)), _all(b, real(float("nan")), bits), value
        )
    return value


def encode(b: Builder, element: Element, value: Value) -> Value:
    """The bits of float32 numbers that the element represents exactly, as those that are `rounded`."""
    if element.name == "f16":
        return b.cast("bitcast", b.cast("fptrunc", value, "half"), "i16")
    if element.name == "bf16":
        return b.cast("trunc", _shift(b, "lshr", b.cast("bitcast", value, "i32"), 16), "i16")
    small = _SMALL[element.name]
    word = b.cast("bitcast", value, "i32")
    scaled = b.binary("fmul", b.intrinsic("fabs", value), _all(b, real(2.0 ** (small.bias - 127)), value))
    code = _shift(b, "lshr", b.cast("bitcast", scaled, "i32"), 23 - small.mantissa)
    is_nan = b.compare("fcmp uno", value, value)
    if small.nan is None:
        infinite = b.compare("fcmp oeq", b.intrinsic("fabs", value), _all(b, real(float("inf")), value))
        code = b.select(infinite, _like(b, 0x7C, code), code)
        code = b.select(is_nan, _like(b, 0x7F, code), code)
    sign = _mask(b, _shift(b, "lshr", word, 24), 0x80)
    if small.zeros == 1:
        sign = b.select(b.compare("icmp eq", code, _like(b, 0, code)), _like(b, 0, code), sign)
    code = b.binary("or", code, sign)
    if small.nan is not None:
        code = b.select(is_nan, _like(b, small.nan, code), code)
    return b.cast("trunc", code, "i8")


def rounded(b: Builder, element: Element, value: Value) -> Value:
    """Float32 rounded to the element's nearest, ties to even; 8 bits saturate, infinities of E5M2 stay."""
    if element.name == "f16":
        return b.cast("fpext", b.cast("fptrunc", value, "half"), "float")
    if element.name == "bf16":
        return _rounded_bf16(b, value)
    small = _SMALL[element.name]
    magnitude = b.intrinsic("fabs", value)
    word = b.cast("bitcast", magnitude, "i32")
    drop = 23 - small.mantissa
    odd = _mask(b, _shift(b, "lshr", word, drop), 1)
    near = b.add(word, b.add(odd, _like(b, (1 << (drop - 1)) - 1, word)))
    normal = b.cast("bitcast", _mask(b, near, ~((1 << drop) - 1)), "float")
    smallest = 2.0 ** (1 - small.bias)
    # below the smallest normal number the spacing is constant: adding and taking away 2^23 spacings rounds to
    # it
    shift = _all(b, real(smallest * 2.0 ** (23 - small.mantissa)), value)
    subnormal = b.binary("fsub", b.binary("fadd", magnitude, shift), shift)
    result = b.select(b.compare("fcmp olt", magnitude, _all(b, real(smallest), value)), subnormal, normal)
    largest = _all(b, real(_largest(small)), value)
    above = b.compare("fcmp ogt", result, largest)
    if small.nan is None:
        above = b.binary("and", above, b.compare("fcmp one", magnitude, _all(b, real(float("inf")), value)))
    result = b.select(above, largest, result)
    result = b.select(b.compare("fcmp uno", value, value), value, result)
    return b.intrinsic("copysign", result, value)


def truncated(b: Builder, element: Element, value: Value) -> Value:
    """Float32 numbers rounded toward zero to what a 16-bit element has."""
    if element.name == "bf16":
        return b.cast("bitcast", _mask(b, b.cast("bitcast", value, "i32"), ~0xFFFF), "float")
    half = b.cast("fptrunc", value, "half")
    away = b.compare(
        "fcmp ogt", b.intrinsic("fabs", b.cast("fpext", half, "float")), b.intrinsic("fabs", value)
    )
    bits = b.cast("bitcast", half, "i16")
    return decode(b, element, b.binary("sub", bits, b.cast("zext", away, "i16")))


def to_odd(b: Builder, value: Value) -> Value:
    """Float64 as float32, inexact ones with an odd last bit, so that rounding again is right."""
    single = b.cast("fptrunc", value, "float")
    back = b.cast("fpext", single, "double")
    away = b.compare("fcmp ogt", b.intrinsic("fabs", back), b.intrinsic("fabs", value))
    inexact = b.compare("fcmp one", back, value)
    bits = b.binary("sub", b.cast("bitcast", single, "i32"), b.cast("zext", away, "i32"))
    return b.cast("bitcast", b.binary("or", bits, b.cast("zext", inexact, "i32")), "float")


def _largest(small: Small) -> float:
    exponent, mantissa = small.largest >> small.mantissa, small.largest & ((1 << small.mantissa) - 1)
    return (1 + mantissa / (1 << small.mantissa)) * 2.0 ** (exponent - small.bias)


def _rounded_bf16(b: Builder, value: Value) -> Value:
    word = b.cast("bitcast", value, "i32")
    odd = _mask(b, _shift(b, "lshr", word, 16), 1)
    near = _mask(b, b.add(word, b.add(odd, _like(b, 0x7FFF, word))), ~0xFFFF)
    quiet = _mask(b, b.binary("or", word, _like(b, 0x400000, word)), ~0xFFFF)
    return b.cast("bitcast", b.select(b.compare("fcmp uno", value, value), quiet, near), "float")


def _shift(b: Builder, operation: str, value: Value, count: int) -> Value:
    return b.binary(operation, value, _like(b, count, value))


def _mask(b: Builder, value: Value, bits: int) -> Value:
    return b.binary("and", value, _like(b, bits, value))


def _like(b: Builder, number: int, value: Value) -> Value:
    return b.splat(integer(number, element_of(value.type)), lanes_of(value.type))


def _all(b: Builder, number: Value, value: Value) -> Value:
    return b.splat(number, lanes_of(value.type))
