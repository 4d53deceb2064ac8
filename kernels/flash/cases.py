"""Calls on which every attention image is tried, each kernel alone: what earlier kernels would have computed comes from
the float64 reference, rounded as it is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from aotforge.interpret.numbers import DType, decode, encode
from aotforge.verify.bounds import FLOAT32, Bounded
from aotforge.verify.tensors import Float, Guarded, Layout
from aotforge.verify.trial import Case, Trial

from .bounds import bounds
from .call import Case as Problem
from .call import values_of
from .reference import attention, attention_backward

_DTYPES: Mapping[int, DType] = {2: "fp16", 3: "bf16"}
_STRIDED = Layout(order=(0, 2, 1))  # a view of (batch, rows, heads, head_dim)
_SPARE = Layout(spare_rows=3)  # what lies beyond each head's last row is not a number
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
_BASE = Problem(sm_scale=0.15)
_FULL = {
    "ragged": replace(_BASE, heads_q=2, heads_k=2, seqlen_q=129, seqlen_k=77, layout=_SPARE),
    "whole blocks": replace(_BASE, seqlen_q=128, seqlen_k=128),
    "grouped": replace(_BASE, heads_q=4, heads_k=2, seqlen_q=40, seqlen_k=33, batch=2),
    "strided": replace(_BASE, heads_q=2, heads_k=2, seqlen_q=33, seqlen_k=70, layout=_STRIDED),
    "one row": replace(_BASE, heads_q=2, heads_k=1, seqlen_q=1, seqlen_k=77),
    "few rows": replace(_BASE, heads_q=2, heads_k=2, seqlen_q=13, seqlen_k=129, layout=_STRIDED),
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
    "whole blocks": replace(_BASE, seqlen_q=128, seqlen_k=128, window_right=0),
    "grouped": replace(_BASE, heads_q=4, heads_k=2, seqlen_q=40, seqlen_k=33, window_right=-7, batch=2),
    "strided": replace(
        _BASE, heads_q=2, heads_k=2, seqlen_q=33, seqlen_k=70, window_right=37, layout=_STRIDED
    ),
    "one row": replace(_BASE, heads_q=2, seqlen_q=1, seqlen_k=77, window_right=76),
    "few rows": replace(_BASE, heads_q=2, heads_k=2, seqlen_q=13, seqlen_k=129, window_right=116),
    "few rows, top-left": replace(_BASE, seqlen_q=13, seqlen_k=40, window_right=0, layout=_STRIDED),
    "no keys": replace(_BASE, seqlen_q=20, seqlen_k=0, window_right=0),
    "no keys, few rows": replace(_BASE, seqlen_q=5, seqlen_k=0, window_right=-5),
    "no queries": replace(_BASE, heads_q=2, heads_k=1, seqlen_q=0, seqlen_k=20, window_right=0),
    "wide window": replace(_BASE, seqlen_q=20, seqlen_k=40, window_right=2**31 - 1),
}


def cases(kernel: str, keys: Mapping[str, int]) -> list[Case]:
    """Every problem on aligned tensors and on unaligned ones; the forward also without log-sum-exp."""
    dtype = _DTYPES[keys["dtype"]]
    problems = _CAUSAL if keys.get("causal") else _FULL
    found = []
    for number, (name, base) in enumerate(problems.items()):
        problem = replace(base, dtype=dtype, head_dim=keys["head_dim"], seed=number)
        for where, posed in ((name, problem), (f"{name}, unaligned", replace(problem, layout=_UNALIGNED))):
            found.append(Case(name=where, make=lambda p=posed: _trial(kernel, p)))
            if kernel == "attn_fwd" and name in {"ragged", "top-left", "few rows"}:
                without = f"{where}, no log-sum-exp"
                found.append(Case(name=without, make=lambda p=posed: _trial(kernel, p, lse=False)))
    return found


def _trial(kernel: str, problem: Problem, *, lse: bool = True) -> Trial:
    known: dict[str, Float] = problem.inputs()
    if kernel != "attn_fwd":
        known |= _forward(problem, known)
    inputs = {name: _tensor(problem, name, known[name]) for name in _INPUTS[kernel].split()}
    names = {n: result for n, result in _OUTPUTS[kernel].items() if lse or n != "L"}
    outputs = {name: _tensor(problem, name) for name in names}
    values = values_of(problem, {**inputs, **outputs})
    if not lse:
        values |= {"L": 0, "stride_lz": 0}

    def expected() -> dict[str, Bounded]:
        if kernel == "bwd_preprocess":
            return {"D": _delta(problem, known)}
        results = bounds(
            known["Q"], known["K"], known["V"], known["DO"],
            sm_scale=problem.sm_scale, window_right=problem.window_right, dtype=problem.dtype, given=kernel != "attn_fwd",
        )  # fmt: skip
        return {n: _shaped(results[result], outputs[n].shape) for n, result in names.items()}

    return Trial(values=values, inputs=inputs, outputs=outputs, expected=expected)


def _tensor(problem: Problem, name: str, values: Float | None = None) -> Guarded:
    if name not in {"L", "D"}:
        return Guarded(problem.shape(name), problem.dtype, problem.layout, values)
    # float32 per query; three elements between rows: they need not be dense
    shape = (1, 1, problem.batch * problem.heads_q, problem.seqlen_q)
    return Guarded(
        shape, "fp32", Layout(row_padding=3), None if values is None else np.reshape(values, shape)
    )


def _forward(problem: Problem, known: Mapping[str, Float]) -> dict[str, Float]:
    """Out, L and D as the forward and the preprocessing store them."""
    window = {"sm_scale": problem.sm_scale, "window_right": problem.window_right}
    out, lse = attention(known["Q"], known["K"], known["V"], **window)
    delta = attention_backward(known["Q"], known["K"], known["V"], known["DO"], **window).delta
    return {"Out": decode(encode(out, problem.dtype), problem.dtype), "L": lse, "D": delta}


def _delta(problem: Problem, known: Mapping[str, Float]) -> Bounded:
    products = known["Out"] * known["DO"]
    error = problem.head_dim * FLOAT32 * np.abs(products).sum(axis=-1) + 2.0**-150
    shape = (1, 1, problem.batch * problem.heads_q, problem.seqlen_q)
    return _shaped(Bounded(value=products.sum(axis=-1), error=error), shape)


def _shaped(bounded: Bounded, shape: tuple[int, ...]) -> Bounded:
    return Bounded(value=np.reshape(bounded.value, shape), error=np.reshape(bounded.error, shape))
