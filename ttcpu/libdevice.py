"""Triton's device library for CPUs, with names and types of other targets; symbols are the names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton.language import core

_FP32, _FP64, _INT32, _INT64 = (core.dtype(name) for name in ("fp32", "fp64", "int32", "int64"))
_FLOATS = (_FP32, _FP64)
_Table = Mapping[tuple[Any, ...], Any]


def _function(symbol: str, table: _Table, *, predicate: bool = False) -> Any:
    """A function whose result's type follows from its arguments'. A predicate returns booleans."""
    symbols = {arguments: (symbol, result) for arguments, result in table.items()}

    def call(arguments: list[Any], semantic: Any) -> Any:
        result = core.extern_elementwise("", "", arguments, symbols, is_pure=True, _semantic=semantic)
        return result.to(core.int1, _semantic=semantic) if predicate else result

    def unary(arg0: Any, _semantic: Any = None) -> Any:
        return call([arg0], _semantic)

    def binary(arg0: Any, arg1: Any, _semantic: Any = None) -> Any:
        return call([arg0, arg1], _semantic)

    def ternary(arg0: Any, arg1: Any, arg2: Any, _semantic: Any = None) -> Any:
        return call([arg0, arg1, arg2], _semantic)

    made = core.extern((unary, binary, ternary)[len(next(iter(table))) - 1])
    made.__name__ = symbol
    return made


def _same(arguments: int) -> _Table:
    return {(kind,) * arguments: kind for kind in _FLOATS}


def _to(result: Any, *kinds: Any) -> _Table:
    return {(kind,): result for kind in kinds}


_INTEGERS = {(_INT32,): _INT32, (_INT64,): _INT64}
_UNARY = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "cos", "cosh", "erf", "erfc", "exp",
    "exp10", "exp2", "expm1", "floor", "j0", "j1", "lgamma", "log", "log10", "log1p", "log2", "nearbyint",
    "rint", "round", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh", "tgamma", "trunc", "y0", "y1",
    "cyl_bessel_i0", "cyl_bessel_i1", "erfcx", "erfinv",
)  # fmt: skip
_BINARY = ("atan2", "copysign", "fdim", "fmod", "hypot", "nextafter", "remainder")
_FAST = ("fast_expf", "fast_tanhf", "fast_logf", "fast_log2f", "fast_sinf", "fast_cosf")
_TABLES: dict[str, _Table] = (
    {name: _same(1) for name in _UNARY}
    | {name: _same(2) for name in _BINARY}
    | {name: {(_FP32,): _FP32} for name in _FAST}
    | {
        "abs": {**_same(1), **_INTEGERS},
        "clz": _to(_INT32, _INT32, _INT64),
        "fast_dividef": {(_FP32, _FP32): _FP32},
        "finitef": _to(_INT32, _FP32),
        "fma": _same(3),
        "ilogb": _to(_INT32, *_FLOATS),
        "isfinited": _to(_INT32, _FP64),
        "ldexp": {(kind, _INT32): kind for kind in _FLOATS},
        "llrint": _to(_INT64, *_FLOATS),
        "popc": _to(_INT32, _INT32, _INT64),
        "pow": {**_same(2), **{(kind, _INT32): kind for kind in _FLOATS}},
        "signbit": _to(_INT32, *_FLOATS),
    }
)
_PREDICATES = ("isnan", "isinf")

globals().update({name: _function(name, table) for name, table in _TABLES.items()})
globals().update({name: _function(name, _to(_INT32, *_FLOATS), predicate=True) for name in _PREDICATES})
