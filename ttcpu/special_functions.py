"""Functions that the C library lacks, in float64: inverse error function, scaled erfc, Bessel."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from .llvm_ir import Builder, Value, element_of, lanes_of, real
from .math_functions import library_call

_SERIES_END = 20.0
"""Where the Bessel functions' asymptotic series takes over; its smallest term is about e^-40."""
_TERMS = 48
_ASYMPTOTIC_TERMS = 30
_ERFCX_END = 25.0
"""Below it erfc is a normal number; beyond it 9 terms of the asymptotic series are exact to float64."""


def _in_float64(
    function: Callable[[Builder, Value], Value],
) -> Callable[[Builder, Sequence[Value], str], Value]:
    def call(b: Builder, v: Sequence[Value], _result: str) -> Value:
        if element_of(v[0].type) == "double":
            return function(b, v[0])
        return b.cast("fptrunc", function(b, b.cast("fpext", v[0], "double")), "float")

    return call


def _all(b: Builder, number: float, like: Value) -> Value:
    return b.splat(real(number, "double"), lanes_of(like.type))


def _negated(b: Builder, x: Value) -> Value:
    return b.let(x.type, f"fneg {x}")


def _polynomial(b: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    value = _all(b, coefficients[-1], x)
    for coefficient in reversed(coefficients[:-1]):
        value = b.intrinsic("fma", value, x, _all(b, coefficient, x))
    return value


def _erfinv(b: Builder, x: Value) -> Value:
    """Winitzki's approximation, then three of Halley's steps; near 1 on erfc, so that nothing cancels."""
    size = b.intrinsic("fabs", x)
    a = 0.147
    log = library_call(b, "log1p", [_negated(b, b.binary("fmul", size, size))])
    half = b.binary("fadd", b.binary("fmul", log, _all(b, 0.5, x)), _all(b, 2 / (math.pi * a), x))
    rest = b.binary("fmul", log, _all(b, -1 / a, x))
    # sqrt(sqrt(half^2 + rest) - half) without the cancellation where rest is small and half positive
    root = b.intrinsic("sqrt", b.intrinsic("fma", half, half, rest))
    small = b.binary("fdiv", rest, b.binary("fadd", root, half))
    square = b.select(b.compare("fcmp ogt", half, _all(b, 0.0, x)), small, b.binary("fsub", root, half))
    y = b.intrinsic("sqrt", square)
    for _ in range(3):
        near = b.binary("fsub", library_call(b, "erf", [y]), size)
        far = b.binary("fsub", b.binary("fsub", _all(b, 1.0, x), size), library_call(b, "erfc", [y]))
        error = b.select(b.compare("fcmp olt", size, _all(b, 0.5, x)), near, far)
        slope = library_call(b, "exp", [b.binary("fmul", y, y)])
        ratio = b.binary("fmul", b.binary("fmul", error, slope), _all(b, math.sqrt(math.pi) / 2, x))
        y = b.binary("fsub", y, b.binary("fdiv", ratio, b.intrinsic("fma", ratio, y, _all(b, 1.0, x))))
    y = b.select(b.compare("fcmp oeq", size, _all(b, 1.0, x)), _all(b, math.inf, x), y)
    # for the smallest numbers erf is a multiple: steps would divide by numbers that have no accuracy
    tiny = b.binary("fmul", size, _all(b, math.sqrt(math.pi) / 2, x))
    y = b.select(b.compare("fcmp olt", size, _all(b, 1e-9, x)), tiny, y)
    return b.intrinsic("copysign", y, x)


def _erfcx(b: Builder, x: Value) -> Value:
    """e^(x^2) erfc(x): the square in two parts, an asymptotic series where erfc underflows."""
    bounded = b.intrinsic("minnum", x, _all(b, _ERFCX_END, x))
    square = b.binary("fmul", bounded, bounded)
    low = b.intrinsic("fma", bounded, bounded, _negated(b, square))
    product = b.binary("fmul", library_call(b, "exp", [square]), library_call(b, "erfc", [bounded]))
    # where the product is infinite, `low` may be anything
    finite = b.compare("fcmp olt", product, _all(b, math.inf, x))
    near = b.intrinsic("fma", product, b.select(finite, low, _all(b, 0.0, x)), product)
    near = b.select(finite, near, product)
    inverse = b.binary("fdiv", _all(b, 1.0, x), x)
    series = [1.0]
    for k in range(1, 9):
        series.append(-series[-1] * (2 * k - 1) / 2)
    tail = _polynomial(b, b.binary("fmul", inverse, inverse), series)
    far = b.binary("fmul", b.binary("fmul", inverse, _all(b, 1 / math.sqrt(math.pi), x)), tail)
    value = b.select(b.compare("fcmp ogt", x, _all(b, _ERFCX_END, x)), far, near)
    return b.select(b.compare("fcmp uno", x, x), x, value)


def _bessel(order: int) -> Callable[[Builder, Value], Value]:
    """The modified Bessel function of the first kind: power series, then the asymptotic one times e^x."""
    series = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(_TERMS)]
    asymptotic = [1.0]
    for k in range(1, _ASYMPTOTIC_TERMS):
        asymptotic.append(asymptotic[-1] * -(4 * order**2 - (2 * k - 1) ** 2) / (8 * k))

    def compute(b: Builder, x: Value) -> Value:
        size = b.intrinsic("fabs", x)
        bounded = b.intrinsic("minnum", size, _all(b, _SERIES_END, x))
        half = b.binary("fmul", bounded, _all(b, 0.5, x))
        near = _polynomial(b, b.binary("fmul", half, half), series)
        if order:
            near = b.binary("fmul", near, half)
        large = b.intrinsic("maxnum", size, _all(b, _SERIES_END, x))
        root = library_call(b, "exp", [b.binary("fmul", large, _all(b, 0.5, x))])
        tail = _polynomial(b, b.binary("fdiv", _all(b, 1.0, x), large), asymptotic)
        scale = b.intrinsic("sqrt", b.binary("fmul", large, _all(b, 2 * math.pi, x)))
        far = b.binary("fmul", b.binary("fmul", b.binary("fdiv", root, scale), tail), root)
        far = b.select(b.compare("fcmp oeq", size, _all(b, math.inf, x)), size, far)
        value = b.select(b.compare("fcmp ogt", size, _all(b, _SERIES_END, x)), far, near)
        if order:
            value = b.intrinsic("copysign", value, x)
        return b.select(b.compare("fcmp uno", x, x), x, value)

    return compute


SPECIAL: Mapping[str, Callable[[Builder, Sequence[Value], str], Value]] = {
    "erfinv": _in_float64(_erfinv),
    "erfcx": _in_float64(_erfcx),
    "cyl_bessel_i0": _in_float64(_bessel(0)),
    "cyl_bessel_i1": _in_float64(_bessel(1)),
}
"""Device functions by symbol."""
