"""Calls on which every attention image is tried, each kernel alone: what earlier kernels would have computed
comes from
the float64 reference, rounded as it is stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from aotforge.rules import GENERAL_SUFFIX
from aotforge.verify.compare import Bounded, Exact, Expected
from aotforge.verify.invocation import Case, Invocation
from aotforge.verify.tensors import Float, Guarded, dtype_of

from .call import DENSE, Bias, Dropout, arrays_of, tensor_of, values_of
from .call import Case as Problem
from .expectations import INPUTS, expected_of, known_of, outputs_of
from .mask_cases import mask_cases, shaped_mask
from .problems import BASE, COMPACT, general_problems, long_problem, problems
from .sequences import Varlen

_STATE = {"philox_seed_output": "seed", "philox_offset_output": "offset"}


def cases(kernel: str, keys: Mapping[str, int]) -> list[Case]:
    """Every problem; the forward also without log-sum-exp, dQ also without dB, dropout also with its state as
    outputs."""
    if kernel == "attn_dropout_mask":
        return mask_cases(keys)
    found = []
    general = kernel.endswith(GENERAL_SUFFIX)
    kernel = kernel.removesuffix(GENERAL_SUFFIX)
    for name, problem in general_problems(keys) if general else problems(kernel, keys):
        found.append(_case(name, kernel, problem))
        if name.startswith(("ragged", "top-left", "few rows")) and kernel in _OPTIONAL:
            without = f"{name}, no {_OPTIONAL[kernel]}"
            if kernel != "bwd_dq" or problem.bias:
                found.append(Case(name=without, make=partial(invocation_of, kernel, problem, complete=False)))
    if kernel == "attn_fwd" and not general and keys.get("mask") != 2 and not keys.get("dropout"):
        long = Case(name="long", make=partial(invocation_of, kernel, long_problem(keys)), unless_reached=True)
        found.append(long)
    return found


def _case(name: str, kernel: str, problem: Problem) -> Case:
    """A problem, and the same with special numbers: gradients of large ones overflow fp16."""
    make = partial(invocation_of, kernel, problem)
    if problem.draw != "normal" or problem.seqlen_k < _FEW_KEYS:
        return Case(name=name, make=make)
    special = replace(problem, draw="special" if kernel == "attn_fwd" else "small")
    size = math.prod(problem.shape("Q"))
    return Case(name=name, make=make, special=partial(invocation_of, kernel, special), elements=size)


_FEW_KEYS = 16
_OPTIONAL = {"attn_fwd": "log-sum-exp", "bwd_dq": "gradient of the bias"}
"""Outputs that a call may leave out."""
SHAPE = {"batch": 1, "heads_q": 2, "heads_k": 2, "seqlen_q": 512, "seqlen_k": 512}
"""What `shaped` takes, and a call that is typical of a block's work without taking long; bounds of a window and `packed` beside them."""


def shaped(kernel: str, keys: Mapping[str, int], shape: Mapping[str, int]) -> Case:
    """A call of a given shape on aligned tensors, dense or with `packed` one sequence after the other. A
    window is causal and by default
    bottom-right: the last query sees all keys.
    """
    sizes = {**SHAPE, **shape}
    kernel = kernel.removesuffix(GENERAL_SUFFIX)
    if kernel == "attn_dropout_mask":
        return shaped_mask(keys, sizes)
    window = sizes.pop("window_right", sizes["seqlen_k"] - sizes["seqlen_q"])
    left = sizes.pop("window_left", None)
    packed = sizes.pop("packed", 0)
    mask = keys.get("mask", 0)
    lengths = [(sizes[name],) * sizes["batch"] for name in ("seqlen_q", "seqlen_k")]
    problem = Problem(
        batch=sizes["batch"],
        heads_q=sizes["heads_q"],
        heads_k=sizes["heads_k"],
        seqlen_q=sizes["seqlen_q"],
        seqlen_k=sizes["seqlen_k"],
        dtype=dtype_of(keys["dtype"]),
        head_dim=keys["width"],
        window_left=left if mask == 1 else None,
        window_right=window if mask == 1 else None,
        varlen=Varlen(word=COMPACT, queries=lengths[0], keys=lengths[1]) if packed else None,
        bias=Bias() if mask == 2 else None,
        dropout=Dropout() if keys.get("dropout") else None,
        sm_scale=BASE.sm_scale,
    )
    name = ", ".join(f"{name}={value}" for name, value in sizes.items()) + (", packed" if packed else "")
    return Case(name=name, make=partial(invocation_of, kernel, problem))


def invocation_of(kernel: str, problem: Problem, *, complete: bool = True) -> Invocation:
    """One launch of a kernel on a problem; `complete`: with every output that a call may leave out."""
    # where tensors lie changes no number: what was computed for one layout serves all
    numbers = replace(problem, layout=DENSE)
    known = known_of(numbers)
    read = [name for name in INPUTS[kernel].split() if name != "B" or problem.bias]
    inputs = {name: tensor_of(problem, name, known[name]) for name in read} | arrays_of(problem)
    names = [name for name in outputs_of(kernel, problem) if complete or name not in {"L", "DB"}]
    outputs = {name: tensor_of(problem, name) for name in names}
    # without queries nothing is launched
    writes_state = kernel == "attn_fwd" and problem.dropout and problem.seqlen_q > 0 and complete
    state = _STATE if writes_state else {}
    outputs |= {name: Guarded((1,), "u64", DENSE) for name in state}
    values = values_of(problem, {**inputs, **outputs})

    def expected() -> dict[str, Expected | Exact]:
        found: dict[str, Expected | Exact] = {
            name: _stored(problem, name, expected_of(kernel, numbers)[name]) for name in names
        }
        if problem.dropout:
            total = problem.dropout.offset1 + problem.dropout.offset2
            numbers_of = {"seed": problem.dropout.seed, "offset": total % 2**64}
            found |= {name: Exact(value=np.array([numbers_of[state[name]]], np.uint64)) for name in state}
        return found

    return Invocation(values=values, inputs=inputs, outputs=outputs, expected=expected)


def _stored(problem: Problem, name: str, expected: Expected) -> Expected:
    """In the order of axes in which the tensor is stored."""
    if name not in {"L", "D"} or not problem.lse_swapped:
        return expected
    value, error = (np.swapaxes(x, 1, 2) for x in (expected.bounded.value, expected.bounded.error))
    cut_off = expected.cut_off
    return replace(
        expected,
        bounded=Bounded(value=value, error=error),
        same_precision=_swapped(expected.same_precision),
        cut_off=None if cut_off is None else lambda: _swapped(cut_off()),
    )


def _swapped(results: Sequence[Float]) -> list[Float]:
    return [np.swapaxes(one, 1, 2) for one in results]
