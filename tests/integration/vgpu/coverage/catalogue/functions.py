"""Functions of tl.math and of libdevice, in float32 and float64, compared with float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.integration.vgpu.coverage.feature import Feature, N, elementwise, generator, given
from tests.integration.vgpu.coverage.formats import Array

Function = Callable[..., Any]
_RANGES: dict[str, tuple[float, float]] = {
    "all": (-4.0, 4.0),
    "positive": (0.05, 8.0),
    "unit": (-0.95, 0.95),
    "above one": (1.05, 9.0),
}


def _each(function: Callable[..., float]) -> Function:
    return np.vectorize(function, otypes=[np.float64])


def _integral(integrand: Callable[[Array, Array], Array], low: float, high: float, points: int) -> Function:
    """By the trapezoidal rule, which converges exponentially for these integrands."""
    t = np.linspace(low, high, points + 1)
    weights = np.full(points + 1, (high - low) / points)
    weights[[0, -1]] /= 2
    return lambda x: integrand(np.asarray(x)[:, None], t) @ weights


def _bessel_y(order: int) -> Function:
    """By Gauss-Legendre quadrature: over half a turn, and over pieces of the part that decreases like exp(-x
    sinh t)."""
    sign = -1 if order % 2 else 1
    nodes, weights = np.polynomial.legendre.leggauss(80)
    theta, turn = (nodes + 1) * np.pi / 2, weights * np.pi / 2
    pieces = np.arange(0, 8, 0.5)
    t, piece = ((nodes + 1) / 4 + pieces[:, None]).ravel(), np.tile(weights / 4, len(pieces))

    def y(x: Array) -> Array:
        x = np.asarray(x)[:, None]
        first = np.sin(x * np.sin(theta) - order * theta) @ turn
        tail = (np.exp(order * t) + sign * np.exp(-order * t)) * np.exp(-x * np.sinh(t))
        return np.asarray((first - tail @ piece) / np.pi)

    return y


def _erfinv(x: float) -> float:
    y = 0.0
    for _ in range(60):
        y -= (math.erf(y) - x) * math.sqrt(math.pi) / 2 * math.exp(min(y * y, 50.0))
    return y


# name: reference, range of the input
_MATH: dict[str, tuple[Function, str]] = {
    "exp": (np.exp, "all"), "exp2": (np.exp2, "all"), "log": (np.log, "positive"),
        "log2": (np.log2, "positive"),
    "sin": (np.sin, "all"), "cos": (np.cos, "all"), "sqrt": (np.sqrt, "positive"),
        "rsqrt": (lambda x: 1 / np.sqrt(x), "positive"),
    "erf": (_each(math.erf), "all"), "floor": (np.floor, "all"), "ceil": (np.ceil, "all"),
        "abs": (np.abs, "all"),
}  # fmt: skip
_UNARY: dict[str, tuple[Function, str]] = {
    **_MATH,
    "trunc": (np.trunc, "all"), "rint": (np.rint, "all"), "nearbyint": (np.rint, "all"),
    "round": (lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x), "all"),
    "tan": (np.tan, "unit"), "cosh": (np.cosh, "all"), "sinh": (np.sinh, "all"), "tanh": (np.tanh, "all"),
        "atan": (np.arctan, "all"),
    "asin": (np.arcsin, "unit"), "acos": (np.arccos, "unit"), "log10": (np.log10, "positive"),
        "log1p": (np.log1p, "positive"),
    "acosh": (np.arccosh, "above one"), "asinh": (np.arcsinh, "all"), "atanh": (np.arctanh, "unit"),
        "expm1": (np.expm1, "all"),
    "j0": (_integral(lambda x, t: np.cos(x * np.sin(t)) / np.pi, 0, np.pi, 60), "all"),
    "j1": (_integral(lambda x, t: np.cos(t - x * np.sin(t)) / np.pi, 0, np.pi, 60), "all"),
    "y0": (_bessel_y(0), "positive"), "y1": (_bessel_y(1), "positive"),
    "cyl_bessel_i0": (_integral(lambda x, t: np.exp(x * np.cos(t)) / np.pi, 0, np.pi, 60), "all"),
    "cyl_bessel_i1": (_integral(lambda x, t: np.exp(x * np.cos(t)) * np.cos(t) / np.pi, 0, np.pi, 60), "all"),
    "erfinv": (_each(_erfinv), "unit"), "erfc": (_each(math.erfc), "all"),
    "erfcx": (_each(lambda x: math.exp(x * x) * math.erfc(x)), "positive"),
        "lgamma": (_each(math.lgamma), "positive"),
}  # fmt: skip
_FAST: dict[str, tuple[Function, str]] = {"fast_expf": (np.exp, "all"), "fast_tanhf": (np.tanh, "all")}
_BINARY: dict[str, tuple[Function, str, str]] = {
    "atan2": (np.arctan2, "all", "all"), "hypot": (np.hypot, "all", "all"),
        "fmod": (np.fmod, "all", "positive"),
    "pow": (np.power, "positive", "all"), "copysign": (np.copysign, "all", "all"),
}  # fmt: skip
_TO_INTEGER: dict[str, Function] = {
    "isnan": np.isnan, "isinf": np.isinf, "signbit": np.signbit,
}  # fmt: skip
_TOLERANCE = {"fp32": 4e-6, "fp64": 1e-13}
_LOOSE = {"y0": 20, "y1": 20, "j0": 4, "j1": 4, "lgamma": 4, "erfinv": 8}
"""Factors of the tolerance where libdevice itself is less exact."""


def _numbers(name: str, kind: str, span: str) -> Array:
    return generator(f"{name} {kind}").uniform(*_RANGES[span], N)


def _unary(prefix: str, name: str, kind: str, function: Function, span: str) -> Feature:
    tolerance = _TOLERANCE[kind] * _LOOSE.get(name, 1)
    inputs = {"x": given(kind, _numbers(name, kind, span))}
    return elementwise(
        f"{prefix}.{name} {kind}",
        _group(prefix),
        f"{prefix}.{name}(x)",
        kind,
        inputs,
        function,
        tolerance=tolerance,
    )


def _group(prefix: str) -> str:
    return "functions of tl" if prefix == "tl" else "functions of libdevice"


def _binary(name: str, kind: str) -> Feature:
    function, first, second = _BINARY[name]
    inputs = {
        "x": given(kind, _numbers(name, kind, first)),
        "y": given(kind, _numbers(name + " 2", kind, second)),
    }
    text = f"libdevice.{name}(x, y)"
    return elementwise(
        f"libdevice.{name} {kind}",
        _group("libdevice"),
        text,
        kind,
        inputs,
        function,
        tolerance=2 * _TOLERANCE[kind],
    )


def _special(name: str, kind: str) -> Feature:
    inputs = {"x": given(kind, np.tile([1.0, -1.0, np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30], N // 8))}
    text = f"(libdevice.{name}(x) != 0).to(tl.int32)"
    return elementwise(
        f"libdevice.{name} {kind}",
        _group("libdevice"),
        text,
        "i32",
        inputs,
        lambda x: _TO_INTEGER[name](x).astype(np.int32),
    )


def _with_integer(name: str, kind: str, function: Function) -> Feature:
    inputs = {
        "x": given(kind, _numbers(name, kind, "positive")),
        "n": given("i32", generator(name).integers(-6, 7, N)),
    }
    return elementwise(
        f"libdevice.{name} {kind}, i32",
        _group("libdevice"),
        f"libdevice.{name}(x, n)",
        kind,
        inputs,
        function,
        tolerance=_TOLERANCE[kind],
    )


def _bits(name: str, kind: str, result: str, function: Callable[[int], int]) -> Feature:
    numbers = generator(f"{name} {kind}").integers(1, 2**31 - 1, N).astype(np.int64) >> generator(
        name
    ).integers(0, 28, N)
    text = f"libdevice.{name}(x).to(tl.{'int32' if result == 'i32' else 'int64'})"
    return elementwise(
        f"libdevice.{name} {kind}", _group("libdevice"), text, result, {"x": given(kind, numbers)},
        lambda x: np.array([function(n) for n in x.tolist()]),
    )  # fmt: skip


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


FEATURES = (
    *(_unary("tl", name, kind, *line) for name, line in _MATH.items() for kind in ("fp32", "fp64")),
    _unary("tl", "sigmoid", "fp32", _sigmoid, "all"),
    elementwise("tl.softmax fp32", "functions of tl", "tl.softmax(x)", "fp32",
                {"x": given("fp32", _numbers("softmax", "fp32", "all"))},
                    lambda x: np.exp(x) / np.exp(x).sum(), tolerance=1e-6),
    elementwise("tl.sin fp32 of large numbers", "functions of tl", "tl.sin(x)", "fp32",
                {"x": given("fp32", generator("large").uniform(1e4, 1e6, N))}, np.sin, tolerance=1e-6),
    *(_unary("libdevice", name, kind, *line) for name, line in _UNARY.items() for kind in ("fp32", "fp64")),
    *(_unary("libdevice", name, "fp32", *line) for name, line in _FAST.items()),
    *(_binary(name, kind) for name in _BINARY for kind in ("fp32", "fp64")),
    *(_special(name, kind) for name in _TO_INTEGER for kind in ("fp32", "fp64")),
    *(_with_integer("ldexp", kind, np.ldexp) for kind in ("fp32", "fp64")),
    *(_with_integer("pow", kind, lambda x, n: x ** n.astype(np.float64)) for kind in ("fp32", "fp64")),
    *(
        elementwise(f"libdevice.ilogb {kind}", _group("libdevice"), "libdevice.ilogb(x)", "i32",
                    {"x": given(kind, _numbers("ilogb", kind, "positive"))},
                        lambda x: np.floor(np.log2(x)).astype(np.int32))
        for kind in ("fp32", "fp64")
    ),
    *(
        elementwise(f"libdevice.llrint {kind}", _group("libdevice"), "libdevice.llrint(x)", "i64",
                    {"x": given(kind, _numbers("llrint", kind, "all") * 1000)},
                        lambda x: np.rint(x).astype(np.int64))
        for kind in ("fp32", "fp64")
    ),
    *(
        elementwise(f"libdevice.nextafter {kind}", _group("libdevice"), "libdevice.nextafter(x, x + 1)", kind,
                    {"x": given(kind, _numbers("nextafter", kind, "all"))},
                    lambda x, dtype=dtype: np.nextafter(x.astype(dtype), dtype(np.inf)).astype(np.float64))
        for kind, dtype in (("fp32", np.float32), ("fp64", np.float64))
    ),
    *(
        elementwise(f"libdevice.fma {kind}", _group("libdevice"), "libdevice.fma(x, x, x)", kind,
                    {"x": given(kind, _numbers("fma", kind, "all"))}, lambda x: x * x + x,
                        tolerance=_TOLERANCE[kind])
        for kind in ("fp32", "fp64")
    ),
    elementwise("libdevice.fast_dividef fp32", _group("libdevice"), "libdevice.fast_dividef(x, y)", "fp32",
                {"x": given("fp32", _numbers("divide", "fp32", "all")),
                    "y": given("fp32", _numbers("by", "fp32", "positive"))},
                lambda x, y: x / y, tolerance=1e-5),
    _bits("clz", "i32", "i32", lambda n: 32 - n.bit_length()),
    _bits("clz", "i64", "i64", lambda n: 64 - n.bit_length()),
    *(_bits("popc", kind, "i32", lambda n: n.bit_count()) for kind in ("i32", "i64")),
    *(_bits("abs", kind, kind, abs) for kind in ("i32", "i64")),
    elementwise("libdevice.finitef fp32", _group("libdevice"), "(libdevice.finitef(x) != 0).to(tl.int32)",
        "i32",
                {"x": given("fp32", np.tile([1.0, np.inf, np.nan, -np.inf], N // 4))},
                    lambda x: np.isfinite(x).astype(np.int32)),
    elementwise("libdevice.isfinited fp64", _group("libdevice"), "(libdevice.isfinited(x) != 0).to(tl.int32)",
        "i32",
                {"x": given("fp64", np.tile([1.0, np.inf, np.nan, -np.inf], N // 4))},
                    lambda x: np.isfinite(x).astype(np.int32)),
)  # fmt: skip
