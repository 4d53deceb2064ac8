"""Elementary functions: polynomials on vectors of float32, else the C library, a call per lane."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .llvm_ir import Builder, Value, element_of, integer, lanes_of, real

_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.42860682030941723212e-6
"""ln 2 in two parts, the first with 8 trailing zero bits: products with exponents are exact."""

_EXP = (
    1.0,
    1.0,
    0.4999999403953552,
    0.1666652113199234,
    0.041668277233839035,
    0.008368686772882938,
    0.0013819823507219553,
)
_EXP2 = (
    1.0, 0.6931471824645996, 0.24022647738456726, 0.05550359562039375, 0.00961849931627512,
    0.0013390970416367054, 0.00015329310554079711,
)  # fmt: skip
"""e^f for |f| <= ln 2 / 2 and 2^f for |f| <= 1/2: least maximal relative error, 0.03 ulp of float32."""

_LIBRARY = {
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "erf", "erfc", "exp",
    "exp10", "exp2", "expm1", "fdim", "fmod", "hypot", "j0", "j1", "ldexp", "lgamma", "log", "log10", "log1p",
    "log2", "nextafter", "pow", "remainder", "sin", "sinh", "tan", "tanh", "tgamma", "y0", "y1",
}  # fmt: skip
"""Functions of the C library on floats (`ldexp`: and an int); float32's have an f behind the name."""


def library_call(b: Builder, name: str, arguments: Sequence[Value]) -> Value:
    """`name` of the C library for every lane. Raises KeyError for a name that is not one of its functions."""
    if name not in _LIBRARY:
        raise KeyError(name)
    element = element_of(arguments[0].type)
    symbol = name + ("f" if element == "float" else "")
    width = lanes_of(arguments[0].type)

    def lane(number: int) -> Value:
        return b.call(symbol, element, *(b.extract(argument, number) for argument in arguments))

    return b.per_lane(width, element, lane)


def function(b: Builder, name: str, x: Value) -> Value:
    """`name` of a scalar or vector. Raises KeyError for a function that is not known."""
    if element_of(x.type) == "float" and name in _POLYNOMIALS:
        return _POLYNOMIALS[name](b, x)
    return library_call(b, name, [x])


def _exp2(b: Builder, x: Value) -> Value:
    """2^x: x = n + f with |f| <= 1/2, 2^f by a polynomial, then times 2^n, so that subnormals come out."""
    bounded = _clamped(b, x, -160.0, 129.0)
    exponent = b.intrinsic("nearbyint", bounded)
    fraction = b.binary("fsub", bounded, exponent)
    return _scaled(b, _polynomial(b, fraction, _EXP2), exponent)


def _exp(b: Builder, x: Value) -> Value:
    """e^x: x = n ln 2 + f, as above."""
    bounded = _clamped(b, x, -110.0, 90.0)
    exponent = b.intrinsic("nearbyint", b.binary("fmul", bounded, _all(b, 1 / math.log(2), x)))
    fraction = _fma(b, exponent, _all(b, -_LN2_HIGH, x), bounded)
    fraction = _fma(b, exponent, _all(b, -_LN2_LOW, x), fraction)
    return _scaled(b, _polynomial(b, fraction, _EXP), exponent)


def _log(b: Builder, x: Value) -> Value:
    """ln x = n ln 2 + log1p(f) for x = 2^n (1 + f)."""
    number, log1p, tail = _log_parts(b, x)
    total = _fma(b, number, _all(b, _LN2_LOW, x), b.binary("fadd", tail, _all(b, 0.0, x)))
    result = _fma(b, number, _all(b, _LN2_HIGH, x), b.binary("fadd", log1p, total))
    return _log_limits(b, x, result)


def _log2(b: Builder, x: Value) -> Value:
    """log2 x = n + log1p(f) / ln 2; the product with 1 / ln 2 is formed in two parts."""
    number, log1p, tail = _log_parts(b, x)
    high, low = 1.44269502162933349609375, 1.92596299112661746887e-8
    small = _fma(b, tail, _all(b, high, x), b.binary("fmul", b.binary("fadd", log1p, tail), _all(b, low, x)))
    product = b.binary("fmul", log1p, _all(b, high, x))
    error = _fma(b, log1p, _all(b, high, x), b.let(x.type, f"fneg {product}"))
    result = b.binary("fadd", number, b.binary("fadd", product, b.binary("fadd", error, small)))
    return _log_limits(b, x, result)


def _log_parts(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """(n, f, r) with x = 2^n (1 + f), 1 + f within sqrt 1/2 .. sqrt 2, and log1p(f) = f + r."""
    tiny = b.compare("fcmp olt", x, _all(b, 2.0**-126, x))
    normal = b.select(tiny, b.binary("fmul", x, _all(b, 2.0**24, x)), x)
    word = b.cast("bitcast", normal, "i32")
    # taking sqrt(1/2)'s bits away moves the carry into the exponent exactly where the significand passes sqrt
    # 2
    offset = b.binary("sub", word, _int(b, 0x3F3504F3, x))
    exponent = b.binary("ashr", offset, _int(b, 23, x))
    significand = b.binary("sub", word, b.binary("shl", exponent, _int(b, 23, x)))
    number = b.cast("sitofp", exponent, "float")
    number = b.select(tiny, b.binary("fsub", number, _all(b, 24.0, x)), number)
    f = b.binary("fsub", b.cast("bitcast", significand, "float"), _all(b, 1.0, x))
    # log1p(f) = 2 atanh(s) with s = f / (2 + f): f - (f^2/2 - s (f^2/2 + R(s^2)))
    s = b.binary("fdiv", f, b.binary("fadd", f, _all(b, 2.0, x)))
    square = b.binary("fmul", s, s)
    rest = b.binary("fmul", square, _polynomial(b, square, [2 / 3, 2 / 5, 2 / 7, 2 / 9, 2 / 11]))
    half = b.binary("fmul", b.binary("fmul", f, f), _all(b, 0.5, x))
    tail = b.binary("fsub", b.binary("fmul", s, b.binary("fadd", half, rest)), half)
    return number, f, tail


def _log_limits(b: Builder, x: Value, result: Value) -> Value:
    result = b.select(b.compare("fcmp oeq", x, _all(b, float("inf"), x)), x, result)
    result = b.select(b.compare("fcmp oeq", x, _all(b, 0.0, x)), _all(b, -float("inf"), x), result)
    return b.select(b.compare("fcmp ult", x, _all(b, 0.0, x)), _all(b, float("nan"), x), result)


def _sigmoid_tanh(b: Builder, x: Value) -> Value:
    """tanh x = x + x^3 P(x^2) near 0, else 1 - 2 / (e^2x + 1)."""
    size = b.intrinsic("fabs", x)
    square = b.binary("fmul", x, x)
    series = [-1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925, 21844 / 6081075, -929569 / 638512875]
    near = _fma(b, b.binary("fmul", square, x), _polynomial(b, square, series), x)
    power = _exp(b, b.binary("fmul", size, _all(b, 2.0, x)))
    far = b.binary(
        "fsub", _all(b, 1.0, x), b.binary("fdiv", _all(b, 2.0, x), b.binary("fadd", power, _all(b, 1.0, x)))
    )
    return b.select(b.compare("fcmp olt", size, _all(b, 0.4, x)), near, b.intrinsic("copysign", far, x))


_POLYNOMIALS: dict[str, Callable[[Builder, Value], Value]] = {
    "exp": _exp, "exp2": _exp2, "log": _log, "log2": _log2, "tanh": _sigmoid_tanh,
}  # fmt: skip


def _polynomial(b: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's rule, lowest coefficient first."""
    value = _all(b, coefficients[-1], x)
    for coefficient in reversed(coefficients[:-1]):
        value = _fma(b, value, x, _all(b, coefficient, x))
    return value


def _scaled(b: Builder, value: Value, exponent: Value) -> Value:
    """value * 2^exponent, rounded once; NaN where the exponent is NaN. AVX-512 has an instruction for it."""
    lanes = lanes_of(value.type)
    if b.module.avx512 and lanes in {4, 8, 16}:
        mask = integer((1 << max(lanes, 8)) - 1, f"i{max(lanes, 8)}")
        rounding = [integer(4, "i32")] if lanes == 16 else []  # 4: the mode that is set
        name = f"llvm.x86.avx512.mask.scalef.ps.{32 * lanes}"
        return b.call(name, value.type, value, exponent, value, mask, *rounding)
    # in two factors, each a normal number; the number of a NaN is any, but it must be one
    number = b.cast("fptosi", exponent, "i32")
    number = b.let(number.type, f"freeze {number}")
    half = b.binary("ashr", number, _int(b, 1, value))
    for part in (half, b.binary("sub", number, half)):
        bits = b.binary("shl", b.add(part, _int(b, 127, value)), _int(b, 23, value))
        value = b.binary("fmul", value, b.cast("bitcast", bits, "float"))
    return value


def _clamped(b: Builder, x: Value, low: float, high: float) -> Value:
    """x within limits; NaN stays."""
    for limit, beyond in ((low, "fcmp olt"), (high, "fcmp ogt")):
        x = b.select(b.compare(beyond, x, _all(b, limit, x)), _all(b, limit, x), x)
    return x


def _fma(b: Builder, x: Value, y: Value, z: Value) -> Value:
    return b.intrinsic("fma", x, y, z)


def _all(b: Builder, number: float, like: Value) -> Value:
    return b.splat(real(number), lanes_of(like.type))


def _int(b: Builder, number: int, like: Value) -> Value:
    return b.splat(integer(number, "i32"), lanes_of(like.type))
