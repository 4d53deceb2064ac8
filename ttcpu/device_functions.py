"""Code of the device library's functions (libdevice.py), by symbol, on scalars and vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from . import math_functions
from .llvm_ir import Builder, Value, element_of, integer, lanes_of, mangled, real
from .special_functions import SPECIAL

Arguments = Sequence[Value]


def device_function(b: Builder, symbol: str, v: Arguments, result: str) -> Value:
    """A call of `symbol`; `result` is LLVM's type of an element. Raises KeyError for an unknown one."""
    if symbol in _INTRINSICS:
        return b.intrinsic(_INTRINSICS[symbol], *v)
    if symbol in _OWN:
        return _OWN[symbol](b, v, result)
    if len(v) == 1:
        return math_functions.function(b, symbol, v[0])
    return math_functions.library_call(b, symbol, v)


def _like(b: Builder, number: float, value: Value) -> Value:
    element = element_of(value.type)
    scalar = real(number, element) if element in {"float", "double"} else integer(int(number), element)
    return b.splat(scalar, lanes_of(value.type))


def _bits(b: Builder, value: Value) -> Value:
    return b.cast("bitcast", value, "i64" if element_of(value.type) == "double" else "i32")


def _absolute(b: Builder, v: Arguments, _result: str) -> Value:
    if element_of(v[0].type) in {"float", "double"}:
        return b.intrinsic("fabs", v[0])
    return b.call(f"llvm.abs.{mangled(v[0].type)}", v[0].type, v[0], Value("i1", "false"))


def _leading_zeros(b: Builder, v: Arguments, result: str) -> Value:
    count = b.call(f"llvm.ctlz.{mangled(v[0].type)}", v[0].type, v[0], Value("i1", "false"))
    return b.cast("trunc", count, result)


def _is_finite(b: Builder, v: Arguments, result: str) -> Value:
    return b.cast(
        "zext", b.compare("fcmp one", b.intrinsic("fabs", v[0]), _like(b, float("inf"), v[0])), result
    )


def _is_infinite(b: Builder, v: Arguments, result: str) -> Value:
    return b.cast(
        "zext", b.compare("fcmp oeq", b.intrinsic("fabs", v[0]), _like(b, float("inf"), v[0])), result
    )


def _is_nan(b: Builder, v: Arguments, result: str) -> Value:
    return b.cast("zext", b.compare("fcmp uno", v[0], v[0]), result)


def _sign_bit(b: Builder, v: Arguments, result: str) -> Value:
    word = _bits(b, v[0])
    return b.cast("zext", b.compare("icmp slt", word, _like(b, 0, word)), result)


def _divide(b: Builder, v: Arguments, _result: str) -> Value:
    return b.binary("fdiv", v[0], v[1])


def _reciprocal_root(b: Builder, v: Arguments, _result: str) -> Value:
    return b.binary("fdiv", _like(b, 1.0, v[0]), b.intrinsic("sqrt", v[0]))


def _per_lane(name: str) -> Callable[[Builder, Arguments, str], Value]:
    """A function of the C library whose argument's or result's type differs from the first argument's."""

    def call(b: Builder, v: Arguments, result: str) -> Value:
        suffix = "f" if element_of(v[0].type) == "float" else ""

        def lane(number: int) -> Value:
            return b.call(name + suffix, result, *(b.extract(value, number) for value in v))

        return b.per_lane(lanes_of(v[0].type), result, lane)

    return call


def _power(b: Builder, v: Arguments, _result: str) -> Value:
    exponent = v[1] if element_of(v[1].type) != "i32" else b.cast("sitofp", v[1], element_of(v[0].type))
    return math_functions.library_call(b, "pow", [v[0], exponent])


def _fast(name: str) -> Callable[[Builder, Arguments, str], Value]:
    return lambda b, v, _result: math_functions.function(b, name, v[0])


_INTRINSICS = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint",
    "nearbyint": "nearbyint", "round": "round", "fma": "fma", "copysign": "copysign",
}  # fmt: skip
_OWN: Mapping[str, Callable[[Builder, Arguments, str], Value]] = {
    **SPECIAL,
    "abs": _absolute,
    "clz": _leading_zeros,
    "popc": lambda b, v, result: b.cast("trunc", b.intrinsic("ctpop", v[0]), result),
    "finitef": _is_finite,
    "isfinited": _is_finite,
    "isinf": _is_infinite,
    "isnan": _is_nan,
    "signbit": _sign_bit,
    "fast_dividef": _divide,
    "rsqrt": _reciprocal_root,
    "ilogb": _per_lane("ilogb"),
    "llrint": _per_lane("llrint"),
    "ldexp": _per_lane("ldexp"),
    "pow": _power,
    **{f"fast_{name}f": _fast(name) for name in ("exp", "tanh", "log", "log2", "sin", "cos")},
}
