"""Calls that reach AOTriton's images: what its tables select by declared maxima, on packed sequences.

The tables depend on the longest lengths, which a caller declares. Sequences may be much shorter, so a small
problem reaches the images of every length.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from aotforge.verify.compare import Bounded, Expected
from aotforge.verify.interpreter.number_formats import DType
from aotforge.verify.tensors import Float
from kernels.flash.bounds import bounds
from kernels.flash.call import TOP_LEFT
from kernels.flash.call import Case as Problem
from kernels.flash.expectations import expected_of
from kernels.flash.problems import COMPACT
from kernels.flash.sequences import Varlen

MAXIMA = tuple(1 << bits for bits in range(4, 14))
"""Lengths that the tables distinguish."""
_BACKWARDS: Mapping[int, frozenset[str]] = {
    0: frozenset({"bwd_kernel_dk_dv", "bwd_kernel_dq"}),
    1: frozenset({"bwd_kernel_fuse"}),
}
"""Kernels of AOTriton's implementations of the backward by their index. A third one has no text."""
RARE = 2.0**-40
"""Probability of dropout in calls of images that have it: their generator runs, and nothing is dropped. The
mask itself is AOTriton's own, which float64 cannot give."""
FORWARD_ALONE = -1
"""Instead of an index, where the packs have no backward."""
_QUERIES, _KEYS = (40, 0, 7), (70, 5, 12)
_TYPES: Mapping[str, DType] = {"*fp16": "fp16", "*bf16": "bf16", "*fp32": "fp32"}
_CHOICE = re.compile(r"(\w+)='?([^;']*)'?")
_KERNELS: Mapping[str, tuple[str, str, str]] = {
    # name in `kernels.flash.bounds`, kernel and output of our expectations
    "Out": ("out", "attn_fwd", "Out"),
    "L": ("lse", "attn_fwd", "L"),
    "DQ": ("dq", "bwd_dq", "DQ"),
    "DK": ("dk", "bwd_dk_dv", "DK"),
    "DV": ("dv", "bwd_dk_dv", "DV"),
}
OUTPUTS = tuple(_KERNELS)


@dataclass(frozen=True, kw_only=True, order=True)
class Choices:
    """What a functional is compiled for, as a call shows it."""

    dtype: DType
    width: int
    padded: bool
    causal: bool
    dropout: bool
    bias: bool

    @property
    def label(self) -> str:
        """For people."""
        padded = ", padded" if self.padded else ""
        dropout = ", dropout" if self.dropout else ""
        return f"{self.dtype}, head_dim {self.width}{padded}, {'causal' if self.causal else 'full'}{dropout}"

    @property
    def problem(self) -> Problem:
        """The packed sequences on which these images are called."""
        return Problem(
            dtype=self.dtype,
            batch=len(_QUERIES),
            heads_q=2,
            heads_k=1,
            seqlen_q=max(_QUERIES),
            seqlen_k=max(_KEYS),
            head_dim=self.width - 8 if self.padded else self.width,
            window_left=TOP_LEFT if self.causal else None,
            window_right=TOP_LEFT if self.causal else None,
            sm_scale=self.width**-0.5,
            varlen=Varlen(word=COMPACT, queries=_QUERIES, keys=_KEYS),
            seed=1,
        )


def read_choices(functional: str) -> Choices | None:
    """The choices in a functional's name; None for one without a mask, which others' calls reach."""
    values = dict(_CHOICE.findall(functional))
    if "CAUSAL_TYPE" not in values:
        return None
    kind = next(iter(values.values())).partition(":")[0]
    return Choices(
        dtype=_TYPES[kind],
        width=int(values["BLOCK_DMODEL"]),
        padded=values["PADDED_HEAD"] == "True",
        causal=values["CAUSAL_TYPE"] != "0",
        dropout=values["ENABLE_DROPOUT"] == "True",
        bias=values["BIAS_TYPE"] != "0",
    )


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Declared maxima, and the index of the backward. The `problem` fits into the maxima."""

    problem: Problem
    max_q: int
    max_k: int
    backend: int
    dropout_p: float

    @property
    def outputs(self) -> tuple[str, ...]:
        """What the call computes."""
        return OUTPUTS[:2] if self.backend == FORWARD_ALONE else OUTPUTS

    @property
    def label(self) -> str:
        """For messages."""
        p = self.problem
        mask = "causal" if p.window_right is not None else "full"
        maxima = f"maxima {self.max_q} x {self.max_k}" if p.varlen else "dense"
        dropout = ", dropout" if self.dropout_p else ""
        return f"{p.dtype}, head_dim {p.head_dim}, {mask}{dropout}, {maxima}, backward {self.backend}"


def cells(choices: Choices, kernels: Collection[str], maxima: Sequence[int] = MAXIMA) -> Iterator[Cell]:
    """A call for each entry of the tables, and a dense one, with the backwards that `kernels` are all of."""
    base, dropout_p = choices.problem, RARE if choices.dropout else 0.0
    backends = [index for index, needed in _BACKWARDS.items() if needed <= {*kernels}] or [FORWARD_ALONE]
    for max_q, max_k, backend in product(maxima, maxima, backends):
        queries, keys = (
            tuple(min(length, most) for length in lengths)
            for lengths, most in ((_QUERIES, max_q), (_KEYS, max_k))
        )
        problem = replace(
            base,
            seqlen_q=max(queries),
            seqlen_k=max(keys),
            varlen=Varlen(word=COMPACT, queries=queries, keys=keys),
        )
        yield Cell(problem=problem, max_q=max_q, max_k=max_k, backend=backend, dropout_p=dropout_p)
    dense = replace(base, batch=1, varlen=None, window_left=None, window_right=0 if choices.causal else None)
    for backend in backends:
        yield Cell(problem=dense, max_q=0, max_k=0, backend=backend, dropout_p=dropout_p)


def expected_outputs(problem: Problem) -> dict[str, Expected]:
    """Expectations of a call's outputs, whose backward uses what its forward stored."""
    inputs = problem.inputs()
    values, errors = ({name: np.zeros(problem.shape(name)) for name in OUTPUTS} for _ in range(2))
    for part in problem.parts():
        own = part.all_of(inputs)
        bounded = bounds(
            own["Q"], own["K"], own["V"], own["DO"], problem.options(inputs, part), dtype=problem.dtype
        )
        for name, (result, _, _) in _KERNELS.items():
            part.of(name, values[name])[...] = bounded[result].value
            part.of(name, errors[name])[...] = bounded[result].error
    return {
        name: replace(
            expected_of(kernel, problem)[output], bounded=Bounded(value=values[name], error=errors[name])
        )
        for name, (_, kernel, output) in _KERNELS.items()
    }


def tokens_first(problem: Problem, name: str, values: Float) -> Float:
    """A tensor in the order in which the client passes it: (tokens, heads, head_dim)."""
    return np.swapaxes(values[0], 0, 1)


def from_tokens(problem: Problem, name: str, stored: Float) -> Float:
    """The client's output as a tensor of the problem."""
    shape = problem.shape(name)
    if name == "L":
        return stored.reshape(shape)
    return np.swapaxes(stored.reshape(shape[2], shape[1], shape[3]), 0, 1)[None]
