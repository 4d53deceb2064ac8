"""Expected results of each attention kernel: float64 reference with bounds, and the same computation in the
same precision.

A call of variable length is computed sequence by sequence, as if each were a call of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial

import numpy as np

from aotforge.verify.compare import Bounded, Expected
from aotforge.verify.interpreter.number_formats import EPSILON, SMALLEST, decode, encode
from aotforge.verify.tensors import Float

from . import same_precision_reference as same_precision
from .bounds import bounds
from .call import Case as Problem
from .reference import attention, attention_backward
from .same_precision_reference import Order
from .sequences import Part

OUTPUTS: Mapping[str, Mapping[str, str]] = {
    "attn_fwd": {"Out": "out", "L": "lse"},
    "bwd_preprocess": {"D": "delta"},
    "bwd_dk_dv": {"DK": "dk", "DV": "dv"},
    "bwd_dq": {"DQ": "dq", "DB": "db"},
}
"""Names in `bounds` of each kernel's outputs."""
INPUTS: Mapping[str, str] = {
    "attn_fwd": "Q K V B",
    "bwd_preprocess": "Out DO",
    "bwd_dk_dv": "Q K V B DO L D",
    "bwd_dq": "Q K V B DO L D",
}
_TOGETHER: Mapping[str, tuple[str, ...]] = dict.fromkeys(("bwd_dk_dv", "bwd_dq"), ("bwd_dk_dv", "bwd_dq"))
"""Kernels whose expectations are one computation."""
_ORDERS = (Order(), Order(1), Order(4), Order(16), Order(64))
"""A kernel may add in any order. One product at a time is a matrix instruction that rounds after each, or a chain of scalar ones; all at
once is one sum of everything."""
_CUT_OFF = Order(16, bits=25)
"""Of matrix units that cut sums off, as measured on hardware."""
BINARY = (Order(1), Order(16), Order(1, 7), Order(1, 11), _CUT_OFF)
"""The orders whose exponentials are powers of two: a kernel may use either base, and scores round differently in each."""
_STRIDED = tuple(Order(1, stride) for stride in (3, 7, 11))
"""More orders of float32. Its largest error is that of few sums: adding neighbours first can be lucky by a factor of two to three."""
_STRIDED_ROWS = tuple(Order(1, stride) for stride in (3, 5, 7, 9, 11, 13))
"""The same of D, whatever the dtype: it is one sum per row, so that a case of one row has few sums to err in."""


def outputs_of(kernel: str, problem: Problem) -> tuple[str, ...]:
    """The kernel's outputs of a call."""
    return tuple(name for name in OUTPUTS[kernel] if name != "DB" or problem.bias)


def _names(kernels: tuple[str, ...], problem: Problem) -> tuple[str, ...]:
    return tuple(name for kernel in kernels for name in outputs_of(kernel, problem))


@lru_cache(maxsize=64)
def known_of(problem: Problem) -> Mapping[str, Float]:
    """Inputs, and Out, L and D as the forward and the preprocessing store them."""
    known = problem.inputs()
    found = {name: np.zeros(problem.shape(name)) for name in ("Out", "L", "D")}
    for part in problem.parts():
        own, options = part.all_of(known), problem.options(known, part)
        out, lse = attention(own["Q"], own["K"], own["V"], options)
        delta = attention_backward(own["Q"], own["K"], own["V"], own["DO"], options).delta
        for name, values in (("Out", out), ("L", lse), ("D", delta)):
            part.of(name, found[name])[...] = values
    for name, values in found.items():
        dtype = problem.dtype if name == "Out" else "fp32"
        known[name] = decode(encode(values, dtype), dtype)
    return known


@lru_cache(maxsize=64)
def expected_of(kernel: str, problem: Problem) -> Mapping[str, Expected]:
    """Expectation of each output in the tensor's logical shape."""
    expected = _expected(_TOGETHER.get(kernel, (kernel,)), problem)
    return {name: expected[name] for name in outputs_of(kernel, problem)}


@lru_cache(maxsize=64)
def _expected(kernels: tuple[str, ...], problem: Problem) -> Mapping[str, Expected]:
    """Expectations of kernels that are computed together."""
    known = known_of(problem)
    kernel, names = kernels[0], _names(kernels, problem)
    values, errors = ({name: np.zeros(problem.shape(name)) for name in names} for _ in range(2))
    for part in problem.parts():
        bounded = _bounded(kernels, problem, part.all_of(known), part)
        for name in names:
            part.of(name, values[name])[...] = bounded[name].value
            part.of(name, errors[name])[...] = bounded[name].error
    stored = _stored(kernels, problem, orders_of(kernel, problem))
    # float32 products are no task of these matrix units
    has_products = kernel != "bwd_preprocess" and problem.dtype != "fp32"

    def cut_off(name: str) -> list[Float]:
        return [result[name] for result in _stored(kernels, problem, (_CUT_OFF,))]

    return {
        name: Expected(
            bounded=Bounded(value=values[name], error=errors[name]),
            same_precision=[result[name] for result in stored],
            dtype="fp32" if name in {"L", "D"} else problem.dtype,
            cut_off=partial(cut_off, name) if has_products else None,
        )
        for name in names
    }


def orders_of(kernel: str, problem: Problem) -> tuple[Order, ...]:
    """The orders of addition of the results in the same precision."""
    if kernel == "bwd_preprocess":
        return _ORDERS + _STRIDED_ROWS
    return _ORDERS + (_STRIDED if problem.dtype == "fp32" else ())


def same_precision_results(kernel: str, problem: Problem) -> list[dict[str, Float]]:
    """The kernel's outputs in each of `orders_of`."""
    return _stored(_TOGETHER.get(kernel, (kernel,)), problem, orders_of(kernel, problem))


@lru_cache(maxsize=64)
def _stored(kernels: tuple[str, ...], problem: Problem, orders: tuple[Order, ...]) -> list[dict[str, Float]]:
    """The outputs in every order of addition."""
    known, names = known_of(problem), _names(kernels, problem)
    results = [{name: np.zeros(problem.shape(name)) for name in names} for _ in orders]
    for part in problem.parts():
        same = _same_precision(kernels[0], problem, part.all_of(known), part, orders)
        for result, one in zip(results, same, strict=True):
            for name in names:
                part.of(name, result[name])[...] = one[name]
    return results


def _bounded(
    kernels: tuple[str, ...], problem: Problem, own: Mapping[str, Float], part: Part
) -> dict[str, Bounded]:
    if kernels == ("bwd_preprocess",):
        products = own["Out"] * own["DO"]
        # products of small numbers are subnormal: an absolute error each
        error = products.shape[-1] * (EPSILON["fp32"] * np.abs(products).sum(axis=-1) + SMALLEST["fp32"])
        return {"D": Bounded(value=products.sum(axis=-1), error=error)}
    options = problem.options(own, part)
    results = bounds(
        own["Q"], own["K"], own["V"], own["DO"], options, dtype=problem.dtype, given=kernels != ("attn_fwd",)
    )
    return {name: results[result] for kernel in kernels for name, result in OUTPUTS[kernel].items()}


def _same_precision(
    kernel: str, problem: Problem, own: Mapping[str, Float], part: Part, orders: tuple[Order, ...]
) -> list[dict[str, Float]]:
    if kernel == "bwd_preprocess":
        return [{"D": same_precision.preprocess(own["Out"], own["DO"], order=order)} for order in orders]
    q, k, v, options, dtype = own["Q"], own["K"], own["V"], problem.options(own, part), problem.dtype
    results = []
    for order in orders:
        if kernel == "attn_fwd":
            forward = same_precision.attention(
                q, k, v, options, dtype=dtype, order=order, binary=order in BINARY
            )
            results.append(dict(zip(("Out", "L"), forward, strict=True)))
        else:
            grads = same_precision.attention_backward(
                q, k, v, own["DO"], own["L"], own["D"], options, dtype=dtype, order=order, binary=order in BINARY
            )  # fmt: skip
            results.append(dict(zip(("DQ", "DK", "DV", "DB"), grads, strict=True)))
    return results
