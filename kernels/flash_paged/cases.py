"""Calls on which the images of attention over pages are tried, each kernel alone: what splits would have stored
comes from the float64 reference. Rows of pages beyond a sequence's end, and pages of no sequence, are NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from aotforge.verify.compare import Bounded, Exact, Expected
from aotforge.verify.interpreter.number_formats import DType
from aotforge.verify.invocation import Case, Invocation
from aotforge.verify.tensors import Float, Guarded, dtype_of

from . import same_precision
from .problems import Problem, problems
from .reference import combined, complete, partial_results
from .writes import write_cases

SHAPE = {"batch": 4, "heads_k": 2, "group": 8, "queries": 1, "keys": 512, "page_size": 16, "split_keys": 0}
"""What `shaped` takes, with a typical call's numbers; split_keys 0: one split."""


def cases(kernel: str, keys: Mapping[str, int]) -> list[Case]:
    """Every problem; the combining kernel has those of several splits."""
    if kernel == "reshape_and_cache":
        return write_cases(keys)
    if kernel == "paged_combine":
        keys = {**keys, "cache": keys["dtype"]}
    return [
        Case(name=name, make=partial(invocation_of, kernel, keys, problem))
        for name, problem in problems(keys)
        if kernel == "paged_attn" or problem.splits > 1
    ]


def shaped(kernel: str, keys: Mapping[str, int], shape: Mapping[str, int]) -> Case:
    """A call of sequences of one length."""
    sizes = {**SHAPE, **shape}
    if kernel == "reshape_and_cache":
        return write_cases(keys)[0]
    keys = {"cache": keys["dtype"], **keys}
    problem = Problem(
        dtype=dtype_of(keys["dtype"]), cache=dtype_of(keys["cache"]), head_dim=keys["head_dim"],
        queries=(sizes["queries"],) * sizes["batch"], keys=(sizes["keys"],) * sizes["batch"],
        heads_k=sizes["heads_k"], group=sizes["group"], page_size=sizes["page_size"],
        split_keys=sizes["split_keys"] or (sizes["keys"] + 3) // 4 * (kernel == "paged_combine") or None,
    )  # fmt: skip
    name = ", ".join(f"{name}={size}" for name, size in sizes.items())
    return Case(name=name, make=partial(invocation_of, kernel, keys, problem))


def invocation_of(kernel: str, keys: Mapping[str, int], problem: Problem) -> Invocation:
    """One launch of a kernel on a problem."""
    lists = problem.lists()
    if kernel == "paged_combine":
        return _combine(keys, problem, lists)
    numbers = problem.numbers()
    inputs = {"Q": problem.tensor("Q", numbers["Q"])} | lists
    inputs |= {name: problem.tensor(name, numbers[name], problem.used()) for name in "KV"}
    if problem.splits > 1:
        inputs.pop("sinks", None)
        seen = np.isfinite(partial_results(problem).lse.value)[..., None]
        outputs = {"O_part": problem.tensor("O_part", within=seen), "L_part": problem.tensor("L_part")}
    else:
        outputs = {"Out": problem.tensor("Out")} | ({"L": problem.tensor("L")} if problem.lse else {})
    expected = partial(_expected, problem, tuple(outputs))
    return _invocation(keys, problem, inputs, outputs, expected)


def _combine(keys: Mapping[str, int], problem: Problem, lists: Mapping[str, Guarded]) -> Invocation:
    results = partial_results(problem)
    parts, lse = (same_precision.rounded(x.value, "fp32") for x in (results.out, results.lse))
    inputs = {
        "O_part": problem.tensor("O_part", parts, np.isfinite(lse)[..., None]),
        "L_part": problem.tensor("L_part", lse),
    }
    inputs |= {name: tensor for name, tensor in lists.items() if name == "sinks"}
    outputs = {"Out": problem.tensor("Out"), "L": problem.tensor("L")}

    def expected() -> dict[str, Expected | Exact]:
        made = combined(problem, parts, lse)
        same = [same_precision.combined(problem, parts, lse, step) for step in same_precision.STEPS]
        return {
            "Out": _one(made.out, [out for out, _ in same], problem.dtype),
            "L": _one(made.lse, [lse for _, lse in same], "fp32"),
        }

    return _invocation(keys, problem, inputs, outputs, expected)


def _invocation(
    keys: Mapping[str, int],
    problem: Problem,
    inputs: Mapping[str, Guarded],
    outputs: Mapping[str, Guarded],
    expected: Callable[[], Mapping[str, Expected | Exact]],
) -> Invocation:
    values = {**problem.values({**inputs, **outputs}), **keys}
    return Invocation(values=values, inputs=inputs, outputs=outputs, expected=expected)


def _one(
    bounded: Bounded, same: list[Float], dtype: DType, cut_off: Callable[[], list[Float]] | None = None
) -> Expected:
    return Expected(bounded=bounded, same_precision=same, dtype=dtype, cut_off=cut_off)


def _same(problem: Problem, step: int, *, cut_off: bool = False) -> tuple[Float, Float]:
    """Out and L, or those of all splits."""
    if problem.splits == 1:
        return same_precision.complete(problem, step, cut_off=cut_off)
    every = [same_precision.complete(problem, step, n, cut_off=cut_off) for n in range(problem.splits)]
    return np.stack([out for out, _ in every], axis=2), np.stack([lse for _, lse in every], axis=2)


def _expected(problem: Problem, names: tuple[str, ...]) -> dict[str, Expected | Exact]:
    split = problem.splits > 1
    results = partial_results(problem) if split else complete(problem)
    kinds: dict[str, DType] = (
        {"O_part": "fp32", "L_part": "fp32"} if split else {"Out": problem.dtype, "L": "fp32"}
    )
    bounded = (results.out, results.lse)
    same = [_same(problem, step) for step in same_precision.STEPS]

    def cut_off(place: int) -> list[Float]:
        return [_same(problem, same_precision.CUT_OFF_STEP, cut_off=True)[place]]

    return {
        name: _one(bounded[i], [one[i] for one in same], kinds[name], partial(cut_off, i))
        for i, name in enumerate(kinds)
        if name in names
    }
