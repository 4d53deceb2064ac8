"""Calls on which every attention image is tried, each kernel alone: what earlier kernels would have computed comes from
the float64 reference, rounded as it is stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from aotforge.verify.compare import Bounded, Expected
from aotforge.verify.invocation import Case, Invocation
from aotforge.verify.tensors import Float, Guarded, Layout
from aotforge.virtual_gpu.interpreter.number_formats import EPSILON, DType, decode, encode

from . import same_precision_reference as same_precision
from .bounds import bounds
from .call import DENSE, values_of
from .call import Case as Problem
from .reference import attention, attention_backward

_DTYPES: Mapping[int, DType] = {2: "fp16", 3: "bf16"}
_STRIDED = Layout(order=(0, 2, 1))  # a view of (batch, rows, heads, head_dim)
_SPARE = Layout(spare_rows=3)  # elements after each head's last row are not numbers
_UNALIGNED = Layout(order=(1, 0, 2), row_padding=1, offset=37)
_OUTPUTS = {
    "attn_fwd": {"Out": "out", "L": "lse"},
    "bwd_preprocess": {"D": "delta"},
    "bwd_dk_dv": {"DK": "dk", "DV": "dv"},
    "bwd_dq": {"DQ": "dq"},
}
_INPUTS = {
    "attn_fwd": "Q K V",
    "bwd_preprocess": "Out DO",
    "bwd_dk_dv": "Q K V DO L D",
    "bwd_dq": "Q K V DO L D",
}
_ORDERS = (None, 1, 4, 16, 64)
"""Products that the same-precision sums add at a time: a kernel may add in any order. 1 is a matrix instruction
that rounds after each product, None one sum of everything."""
_STRIDES = (3, 5, 7, 9, 11, 13)
"""D is one sum per row, so that a case of one row has few sums to err in, and adding neighbours first can be lucky by an order of
magnitude: its same-precision results also take every n-th column (all of them in the end: only strides without a factor in common with head_dim)."""
_BASE = Problem(sm_scale=0.15)
_FULL = {
    "ragged": replace(_BASE, heads_q=2, heads_k=2, seqlen_q=129, seqlen_k=77, layout=_SPARE),
    "complete blocks": replace(_BASE, seqlen_q=128, seqlen_k=128),
    "grouped": replace(_BASE, heads_q=4, heads_k=2, seqlen_q=40, seqlen_k=33, batch=2),
    "strided": replace(_BASE, heads_q=2, heads_k=2, seqlen_q=33, seqlen_k=70, layout=_STRIDED),
    "one row": replace(_BASE, heads_q=2, heads_k=1, seqlen_q=1, seqlen_k=77),
    "few rows": replace(_BASE, heads_q=2, heads_k=2, seqlen_q=13, seqlen_k=129, layout=_STRIDED),
    "few rows, many keys": replace(_BASE, seqlen_q=13, seqlen_k=300, layout=_SPARE),
    "one key": replace(_BASE, seqlen_q=20, seqlen_k=1, layout=_SPARE),
    "no keys": replace(_BASE, seqlen_q=20, seqlen_k=0),
    "no keys, few rows": replace(_BASE, seqlen_q=5, seqlen_k=0),
    "no queries": replace(_BASE, heads_q=2, heads_k=1, seqlen_q=0, seqlen_k=20),
}
_CAUSAL = {
    "top-left": replace(
        _BASE, heads_q=2, heads_k=2, seqlen_q=129, seqlen_k=77, window_right=0, layout=_SPARE
    ),
    "bottom-right": replace(_BASE, seqlen_q=70, seqlen_k=129, window_right=59, layout=_SPARE),
    "rows without keys": replace(_BASE, seqlen_q=70, seqlen_k=40, window_right=-30),
    "complete blocks": replace(_BASE, seqlen_q=128, seqlen_k=128, window_right=0),
    "grouped": replace(_BASE, heads_q=4, heads_k=2, seqlen_q=40, seqlen_k=33, window_right=-7, batch=2),
    "strided": replace(
        _BASE, heads_q=2, heads_k=2, seqlen_q=33, seqlen_k=70, window_right=37, layout=_STRIDED
    ),
    "one row": replace(_BASE, heads_q=2, seqlen_q=1, seqlen_k=77, window_right=76),
    "few rows": replace(_BASE, heads_q=2, heads_k=2, seqlen_q=13, seqlen_k=129, window_right=116),
    "few rows, many keys": replace(_BASE, seqlen_q=13, seqlen_k=300, window_right=287, layout=_SPARE),
    "few rows, top-left": replace(_BASE, seqlen_q=13, seqlen_k=40, window_right=0, layout=_STRIDED),
    "no keys": replace(_BASE, seqlen_q=20, seqlen_k=0, window_right=0),
    "no keys, few rows": replace(_BASE, seqlen_q=5, seqlen_k=0, window_right=-5),
    "no queries": replace(_BASE, heads_q=2, heads_k=1, seqlen_q=0, seqlen_k=20, window_right=0),
    "wide window": replace(_BASE, seqlen_q=20, seqlen_k=40, window_right=2**31 - 1),
}


def cases(kernel: str, keys: Mapping[str, int]) -> list[Case]:
    """Every problem on aligned tensors and on unaligned ones; the forward also without log-sum-exp."""
    dtype = _DTYPES[keys["dtype"]]
    problems = _CAUSAL if keys.get("mask") else _FULL
    found = []
    for number, (name, base) in enumerate(problems.items()):
        problem = replace(base, dtype=dtype, head_dim=keys["width"], seed=number)
        for where, posed in ((name, problem), (f"{name}, unaligned", replace(problem, layout=_UNALIGNED))):
            found.append(Case(name=where, make=lambda p=posed: _invocation(kernel, p)))
            if kernel == "attn_fwd" and name in {"ragged", "top-left", "few rows"}:
                without = f"{where}, no log-sum-exp"
                found.append(Case(name=without, make=lambda p=posed: _invocation(kernel, p, lse=False)))
    return found


SHAPE = {"batch": 1, "heads_q": 2, "heads_k": 2, "seqlen_q": 512, "seqlen_k": 512}
"""What `shaped` takes, and a call that is typical of a block's work without taking long; `window_right` beside them."""


def shaped(kernel: str, keys: Mapping[str, int], shape: Mapping[str, int]) -> Case:
    """A call of a given shape on dense, aligned tensors; causal without `window_right` is bottom-right: the last query sees all keys."""
    sizes = {**SHAPE, **shape}
    window = sizes.pop("window_right", sizes["seqlen_k"] - sizes["seqlen_q"])
    problem = Problem(
        **sizes,
        dtype=_DTYPES[keys["dtype"]],
        head_dim=keys["width"],
        window_right=window if keys.get("mask") else None,
        sm_scale=_BASE.sm_scale,
    )
    name = ", ".join(f"{name}={value}" for name, value in sizes.items())
    return Case(name=name, make=lambda: _invocation(kernel, problem))


def _invocation(kernel: str, problem: Problem, *, lse: bool = True) -> Invocation:
    # where tensors lie changes no number: what was computed for one layout serves all
    numbers = replace(problem, layout=DENSE)
    known = _known(numbers)
    inputs = {name: _tensor(problem, name, known[name]) for name in _INPUTS[kernel].split()}
    names = [name for name in _OUTPUTS[kernel] if lse or name != "L"]
    outputs = {name: _tensor(problem, name) for name in names}
    values = values_of(problem, {**inputs, **outputs})
    if not lse:
        values |= {"L": 0, "stride_lz": 0, "stride_lh": 0, "stride_lm": 0}

    def expected() -> dict[str, Expected]:
        found = _expected(kernel, numbers)
        return {name: found[name] for name in names}

    return Invocation(values=values, inputs=inputs, outputs=outputs, expected=expected)


def _tensor(problem: Problem, name: str, values: Float | None = None) -> Guarded:
    if name not in {"L", "D"}:
        return Guarded(problem.shape(name), problem.dtype, problem.layout, values)
    # three elements between rows: they need not be dense
    shaped = None if values is None else np.reshape(values, _rows(problem))
    return Guarded(_rows(problem), "fp32", Layout(row_padding=3), shaped)


def _rows(problem: Problem) -> tuple[int, int, int, int]:
    """The shape of L and D: float32 per query."""
    return (1, 1, problem.batch * problem.heads_q, problem.seqlen_q)


@lru_cache(maxsize=64)
def _known(problem: Problem) -> Mapping[str, Float]:
    """Inputs, and Out, L and D as the forward and the preprocessing store them."""
    known = problem.inputs()
    options = problem.options(known)
    out, lse = attention(known["Q"], known["K"], known["V"], options)
    delta = attention_backward(known["Q"], known["K"], known["V"], known["DO"], options).delta
    single = {name: decode(encode(x, "fp32"), "fp32") for name, x in (("L", lse), ("D", delta))}
    return {**known, "Out": decode(encode(out, problem.dtype), problem.dtype), **single}


@lru_cache(maxsize=64)
def _expected(kernel: str, problem: Problem) -> Mapping[str, Expected]:
    known = _known(problem)
    bounded = _bounded(kernel, problem, known)
    results = [_same_precision(kernel, problem, known, order) for order in _ORDERS]
    if kernel == "bwd_preprocess":
        results += [
            _strided_same_precision(known, problem.head_dim, stride)
            for stride in _STRIDES
            if math.gcd(stride, problem.head_dim) == 1
        ]
    found = {}
    for name, bound in bounded.items():
        shape = _rows(problem) if name in {"L", "D"} else problem.shape(name)
        found[name] = Expected(
            bounded=Bounded(value=np.reshape(bound.value, shape), error=np.reshape(bound.error, shape)),
            same_precision=[np.reshape(result[name], shape) for result in results],
            dtype="fp32" if name in {"L", "D"} else problem.dtype,
        )
    return found


def _bounded(kernel: str, problem: Problem, known: Mapping[str, Float]) -> dict[str, Bounded]:
    if kernel == "bwd_preprocess":
        products = known["Out"] * known["DO"]
        error = problem.head_dim * EPSILON["fp32"] * np.abs(products).sum(axis=-1) + 2.0**-150
        return {"D": Bounded(value=products.sum(axis=-1), error=error)}
    results = bounds(
        known["Q"], known["K"], known["V"], known["DO"], problem.options(known), dtype=problem.dtype, given=kernel != "attn_fwd",
    )  # fmt: skip
    return {name: results[result] for name, result in _OUTPUTS[kernel].items()}


def _strided_same_precision(known: Mapping[str, Float], head_dim: int, stride: int) -> dict[str, Float]:
    columns = np.arange(head_dim) * stride % head_dim
    return {"D": same_precision.preprocess(known["Out"][..., columns], known["DO"][..., columns], order=1)}


def _same_precision(
    kernel: str, problem: Problem, known: Mapping[str, Float], order: same_precision.Order
) -> dict[str, Float]:
    if kernel == "bwd_preprocess":
        return {"D": same_precision.preprocess(known["Out"], known["DO"], order=order)}
    q, k, v = known["Q"], known["K"], known["V"]
    if kernel == "attn_fwd":
        out, lse = same_precision.attention(q, k, v, problem.options(known), dtype=problem.dtype, order=order)
        return {"Out": out, "L": lse}
    dq, dk, dv, db = same_precision.attention_backward(
        q, k, v, known["DO"], known["L"], known["D"], problem.options(known), dtype=problem.dtype, order=order,
    )  # fmt: skip
    return {"DQ": dq, "DK": dk, "DV": dv, "DB": db}
