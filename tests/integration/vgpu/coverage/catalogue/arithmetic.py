"""Operators on every integer and float type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.integration.vgpu.coverage.feature import (
    Feature,
    N,
    Tensor,
    elementwise,
    generator,
    given,
    normal,
    out,
)
from tests.integration.vgpu.coverage.formats import EPSILON, FLOATS, INTEGERS, Array, rounded, storage

_GROUP = "integer operators"


def _wild(name: str, kind: str) -> Tensor:
    limits = np.iinfo(storage(kind))
    found = generator(name).integers(limits.min, limits.max, N, endpoint=True, dtype=storage(kind))
    found[:3] = limits.min, limits.max, 0
    return given(kind, found)


def _divisor(name: str, kind: str) -> Tensor:
    found = np.array(_wild(name + " divisor", kind).stored)
    found = found >> generator(name).integers(0, 8 * found.itemsize - 4, N).astype(found.dtype)
    found = np.where(
        (found == 0) | (found.astype(np.float64) == -1), 3, found
    )  # the lowest number by -1 is undefined
    return given(kind, found)


def _several(
    name: str, group: str, kind: str, lines: str, tensors: dict[str, Tensor], reference: Callable[..., Array]
) -> Feature:
    """`lines` compute what is stored, one output per `r` of N elements."""
    body = (
        f"i = tl.arange(0, {N})\n" + "".join(f"{n[0]} = tl.load({n} + i)\n" for n in tensors) + lines + "\n"
    )
    count = sum(line.startswith("r") for line in lines.splitlines())
    body += "".join(f"tl.store(o + {k * N} + i, r{k})\n" for k in range(count))
    return Feature(
        name=name, group=group, body=body, tensors={**tensors, "o": out(kind, count * N)}, reference=reference
    )


def _truncated(a: Array, b: Array) -> tuple[Array, Array]:
    """C's quotient and remainder."""
    with np.errstate(all="ignore"):
        quotient = a // b
        back = (quotient * b != a) & ((a < 0) != (b < 0))
        quotient = quotient + back.astype(a.dtype)
        return quotient, (a - quotient * b).astype(a.dtype)


def _integer(kind: str) -> tuple[Feature, ...]:
    size = 8 * storage(kind).itemsize
    pair = {"a_": _wild(f"{kind} a", kind), "b_": _wild(f"{kind} b", kind)}
    shifts = {"a_": pair["a_"], "b_": given(kind, generator(kind).integers(0, size, N))}
    division = {"a_": pair["a_"], "b_": _divisor(kind, kind)}
    return (
        _several(f"{kind} + - * -x", _GROUP, kind, "r0 = a + b\nr1 = a - b\nr2 = a * b\nr3 = -a", pair,
                 lambda a, b: np.concatenate([a + b, a - b, a * b, (0 - a).astype(a.dtype)])),
        _several(f"{kind} // %", _GROUP, kind, "r0 = a // b\nr1 = a % b", division, lambda a,
            b: np.concatenate(_truncated(a, b))),
        _several(f"{kind} by constants", _GROUP, kind, "r0 = a // 7\nr1 = a % 10\nr2 = a // 16\nr3 = a * 5",
            {"a_": pair["a_"]},
                 lambda a: np.concatenate([_truncated(a, a.dtype.type(7))[0],
                     _truncated(a, a.dtype.type(10))[1],
                                           _truncated(a, a.dtype.type(16))[0], a * a.dtype.type(5)])),
        _several(f"{kind} << >>", _GROUP, kind, "r0 = a << b\nr1 = a >> b", shifts, lambda a,
            b: np.concatenate([a << b, a >> b])),
        _several(f"{kind} & | ^ ~", _GROUP, kind, "r0 = a & b\nr1 = a | b\nr2 = a ^ b\nr3 = ~a", pair,
                 lambda a, b: np.concatenate([a & b, a | b, a ^ b, ~a])),
        _several(f"{kind} comparisons, where, minimum, maximum", _GROUP, kind,
                 "r0 = tl.where(a < b, a, b)\nr1 = tl.minimum(a, b)\nr2 = tl.maximum(a, b)\n"
                 "r3 = ((a >= b) | (a == 0)).to(a.dtype)", pair,
                 lambda a, b: np.concatenate([np.minimum(a, b), np.minimum(a, b), np.maximum(a, b),
                     ((a >= b) | (a == 0)).astype(a.dtype)])),
    )  # fmt: skip


def _high(a: Array, b: Array) -> Array:
    size = 8 * a.itemsize
    return np.array([x * y >> size for x, y in zip(a.tolist(), b.tolist(), strict=True)], dtype=a.dtype)


def _float(kind: str) -> tuple[Feature, ...]:
    pair = {"a": given(kind, normal(f"{kind} a")), "b": given(kind, normal(f"{kind} b"))}
    odd = {
        "a": given(kind, [0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5, 3.0] * 32),
        "b": given(kind, np.repeat([0.0, np.inf, np.nan, -1.5, -0.0, 2.5, -3.0, 1.0], 32)),
    }
    third = {**pair, "c": given(kind, normal(f"{kind} c"))}
    near = 3 * EPSILON[kind]

    def one(
        expression: str, reference: Callable[..., Any], inputs: dict[str, Tensor], tolerance: float = near
    ) -> Feature:
        return elementwise(
            f"{kind} {expression}",
            "float operators",
            expression,
            kind,
            inputs,
            reference,
            tolerance=tolerance,
        )

    return (
        one("a + b", lambda a, b: rounded(a + b, kind), pair, 0.0),
        one("a - b", lambda a, b: rounded(a - b, kind), pair, 0.0),
        one("a * b", lambda a, b: rounded(a * b, kind), pair, 0.0),
        one("a / b", lambda a, b: a / b, pair),
        one("tl.fma(a, b, c)", lambda a, b, c: a * b + c, third),
        one("-a", lambda a: -a, {"a": pair["a"]}, 0.0),
        one("tl.abs(a)", np.abs, {"a": pair["a"]}, 0.0),
        one("tl.minimum(a, b)", np.fmin, odd, 0.0),
        one("tl.maximum(a, b)", np.fmax, odd, 0.0),
        one("tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)", np.maximum, odd, 0.0),
        one("tl.clamp(a, -1.0, 1.5)", lambda a: np.clip(a, -1.0, 1.5), {"a": pair["a"]}, 0.0),
        one("tl.where((a < b) & (a != 0) | (b >= 1), a, b)", lambda a,
            b: np.where((a < b) & (a != 0) | (b >= 1), a, b), odd, 0.0),
    )  # fmt: skip


def _single(expression: str, reference: Callable[..., Array], tolerance: float = 0.0) -> Feature:
    inputs = {
        "a": given("fp32", normal("single a", scale=50.0)),
        "b": given("fp32", np.abs(normal("single b")) + 0.01),
    }
    return elementwise(
        f"fp32 {expression}", "float operators", expression, "fp32", inputs, reference, tolerance=tolerance
    )


FEATURES = (
    *(feature for kind in INTEGERS for feature in _integer(kind)),
    *(
        elementwise(f"umulhi {kind}", _GROUP, "tl.umulhi(a, b)", kind,
                    {"a": _wild(f"{kind} high a", kind), "b": _wild(f"{kind} high b", kind)}, _high)
        for kind in ("u32", "u64")
    ),
    elementwise("abs i32", _GROUP, "tl.abs(a)", "i32", {"a": given("i32", generator("abs").integers(-999, 999,
        N))}, np.abs),
    elementwise("cdiv i32", _GROUP, "tl.cdiv(a, 7)", "i32",
        {"a": given("i32", generator("cdiv").integers(0, 9999, N))}, lambda a: -(-a // 7)),
    elementwise("i32 index times i32 stride as i64", _GROUP, "a.to(tl.int64) * b", "i64",
                {"a": _wild("mad a", "i32"), "b": _wild("mad b", "i32")}, lambda a,
                    b: a.astype(np.int64) * b),
    elementwise("i32 times i32 plus i64", _GROUP, "a.to(tl.int64) * b.to(tl.int64) + c", "i64",
                {"a": _wild("mac a", "i32"), "b": _wild("mac b", "i32"), "c": _wild("mac c", "i64")},
                lambda a, b, c: a.astype(np.int64) * b + c),
    elementwise("i1 logic", _GROUP, "(a & b) | ((a ^ b) & (a == b))", "i1",
                {"a": given("i1", generator("i1a").integers(0, 2, N)),
                    "b": given("i1", generator("i1b").integers(0, 2, N))},
                lambda a, b: a & b),
    *(feature for kind in FLOATS for feature in _float(kind)),
    _single("a % b", np.fmod, 1e-5),
    _single("tl.div_rn(a, b)", lambda a, b: rounded(a / b, "fp32")),
    _single("tl.fdiv(a, b, ieee_rounding=True)", lambda a, b: rounded(a / b, "fp32")),
    _single("tl.sqrt_rn(b)", lambda a, b: rounded(np.sqrt(b), "fp32")),
    _single("a.to(tl.int32) / 3", lambda a, b: rounded(np.trunc(a) / 3, "fp32"), 3e-7),
)  # fmt: skip
