"""Calls that reach AOTriton's images: what its tables select by declared maxima, on packed sequences.

The tables depend on the longest lengths, which a caller declares. Sequences may be much shorter, so a small
problem reaches the images of every length. Then each image has a call of its own, dense where the lengths
that select it are short enough, with dropout.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from aotforge.verify.compare import Bounded, Expected
from aotforge.verify.interpreter.number_formats import EPSILON, DType, decode, encode
from aotforge.verify.tensors import Float
from kernels.flash.bounds import bounds
from kernels.flash.call import TOP_LEFT, Bias, Case, Dropout
from kernels.flash.expectations import BINARY, orders_of, same_precision_results
from kernels.flash.philox import philox
from kernels.flash.problems import COMPACT
from kernels.flash.reference import Mask, Options
from kernels.flash.same_precision_reference import Order, attention_backward, preprocess
from kernels.flash.sequences import Part, Varlen

MAXIMA = tuple(1 << bits for bits in range(4, 14))
"""Lengths that the tables distinguish."""
_BACKWARDS: Mapping[int, frozenset[str]] = {
    0: frozenset({"bwd_kernel_dk_dv", "bwd_kernel_dq"}),
    1: frozenset({"bwd_kernel_fuse"}),
}
"""Kernels of AOTriton's implementations of the backward by their index. A third one has no text."""
_RARE = 2.0**-40
"""Probability of dropout in the calls that search for images: nothing is dropped, so that one expectation
serves all lengths. Images' own calls have one whose mask matters."""
_DROPOUT = Dropout(p=0.25)
_DENSE_PAIRS = 1 << 20
"""Queries times keys of an entry that has a dense call at most: expectations take seconds then."""
BIAS_ROW = 16
"""Rows of a bias begin at multiples of this number of elements, as PyTorch pads them."""
FORWARD_ALONE = -1
"""Instead of an index, where the packs have no backward."""
_QUERIES, _KEYS = (40, 0, 7), (70, 5, 12)
_TYPES: Mapping[str, DType] = {"*fp16": "fp16", "*bf16": "bf16", "*fp32": "fp32"}
_CHOICE = re.compile(r"(\w+)='?([^;']*)'?")
_BOUNDS: Mapping[str, str] = {
    "Out": "out",
    "L": "lse",
    "DQ": "dq",
    "DK": "dk",
    "DV": "dv",
    "DB": "db",
}
"""Names in `kernels.flash.bounds`."""
OUTPUTS = tuple(_BOUNDS)
"""Of calls with a bias; the last one is its gradient."""


@dataclass(frozen=True, kw_only=True)
class Problem(Case):
    """A problem whose dropout is AOTriton's, which depends on the longest lengths of queries and keys.

    `factor`: the bias is multiplied by it in the dtype, then divided by it; 1 leaves it as it is.
    `factors_first`: as in Options.
    """

    longest: tuple[int, int] = (0, 0)
    factor: float = 1.0
    factors_first: bool = False

    @property
    def outputs(self) -> tuple[str, ...]:
        """What forward and backward compute."""
        return OUTPUTS if self.bias else OUTPUTS[:-1]

    def options(self, inputs: Mapping[str, Float], part: Part | None = None) -> Options:
        """What the references need beside the tensors."""
        options = replace(super().options(inputs, part), factors_first=self.factors_first)
        if options.bias is not None:
            factor = decode(encode(np.array(self.factor), self.dtype), self.dtype)
            scaled = decode(encode(options.bias * factor, self.dtype), self.dtype)
            options = replace(options, bias=scaled / self.factor)
        if options.keep is not None and self.dropout:
            first = part.first if part else 0
            options = replace(options, keep=_keep_mask(self.dropout, options.keep, first, self.longest))
        return options


def _keep_mask(dropout: Dropout, like: Mask, first: int, longest: tuple[int, int]) -> Mask:
    """What AOTriton's dropout keeps of the sequences from `first` on, with the axes of `like`.

    One draw of Philox-4x32-10 serves four columns of a row; its words are those of columns 0, 2, 1 and 3, and
    are compared as signed numbers.
    """
    planes, heads, rows, columns = like.shape
    row_size = -(-longest[1] // 4)
    head = np.arange(first * heads, (first + planes) * heads, dtype=np.uint64).reshape(planes, heads, 1, 1)
    row = np.arange(rows, dtype=np.uint64)[:, None]
    group = np.arange(-(-columns // 4), dtype=np.uint64)
    start = np.uint64((dropout.offset1 + dropout.offset2) % 2**64)
    counter = start + (head * np.uint64(longest[0]) + row) * np.uint64(row_size) + group
    zero = np.zeros_like(counter)
    words = philox(
        dropout.seed, (counter & np.uint64(0xFFFFFFFF), counter >> np.uint64(32), zero, zero), rounds=10
    )
    drawn = np.stack([words[i] for i in (0, 2, 1, 3)], axis=-1).astype(np.uint32).view(np.int32)
    threshold = int((np.float32(dropout.p) - np.float32(0.5)) * np.float32(2**32))
    return np.asarray(drawn.reshape(planes, heads, rows, -1)[..., :columns] > threshold)


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
        words = {"padded": self.padded, "dropout": self.dropout, "bias": self.bias}
        mask = "causal" if self.causal else "full"
        return ", ".join(
            [self.dtype, f"head_dim {self.width}", mask, *(word for word, has in words.items() if has)]
        )

    def problem(self, queries: Sequence[int], keys: Sequence[int], *, packed: bool = True) -> Problem:
        """Sequences of these lengths; else one, as a dense call has it."""
        side = TOP_LEFT if packed else None
        return Problem(
            dtype=self.dtype,
            batch=len(queries),
            heads_q=2,
            heads_k=1,
            seqlen_q=max(queries),
            seqlen_k=max(keys),
            head_dim=self.width - 8 if self.padded else self.width,
            sm_scale=self.width**-0.5,
            bias=Bias() if self.bias else None,
            varlen=Varlen(word=COMPACT, queries=tuple(queries), keys=tuple(keys)) if packed else None,
            window_left=side if self.causal else None,
            window_right=(side or 0) if self.causal else None,
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
    """A call. `maxima`: declared lengths of queries and keys, into which the problem fits; None: it is dense.
    `backend`: index of the backward."""

    problem: Problem
    maxima: tuple[int, int] | None
    backend: int
    dropout_p: float

    @property
    def outputs(self) -> tuple[str, ...]:
        """What the call computes."""
        names = self.problem.outputs
        return names[:2] if self.backend == FORWARD_ALONE else names

    @property
    def label(self) -> str:
        """For messages."""
        p = self.problem
        mask = "causal" if p.window_right is not None else "full"
        lengths = (
            "maxima {} x {}".format(*self.maxima) if self.maxima else f"dense {p.seqlen_q} x {p.seqlen_k}"
        )
        more = (", bias" if p.bias else "") + (", dropout" if self.dropout_p else "")
        return f"{p.dtype}, head_dim {p.head_dim}, {mask}{more}, {lengths}, backward {self.backend}"


def cells(choices: Choices, kernels: Collection[str], maxima: Sequence[int] = MAXIMA) -> Iterator[Cell]:
    """A call for each entry of the tables, with the backwards that `kernels` are all of.

    A bias is that of one sequence: AOTriton has none for several.
    """
    backends = [index for index, needed in _BACKWARDS.items() if needed <= {*kernels}] or [FORWARD_ALONE]
    count = 1 if choices.bias else len(_QUERIES)
    for max_q, max_k, backend in product(maxima, maxima, backends):
        queries, keys = (
            [min(length, most) for length in lengths[:count]]
            for lengths, most in ((_QUERIES, max_q), (_KEYS, max_k))
        )
        yield Cell(
            problem=choices.problem(queries, keys, packed=not choices.bias),
            maxima=(max_q, max_k),
            backend=backend,
            dropout_p=_RARE if choices.dropout else 0.0,
        )


def own_call(choices: Choices, maxima: tuple[int, int], backend: int) -> Cell:
    """A call of one sequence for the images of an entry of the tables: dense if its lengths are short enough.

    The lengths are the smallest that select the entry, and no multiple of anything.
    """
    dense = maxima[0] * maxima[1] <= _DENSE_PAIRS
    queries, keys = (
        most // 2 + 1 if dense else min(lengths[0], most)
        for lengths, most in ((_QUERIES, maxima[0]), (_KEYS, maxima[1]))
    )
    problem = replace(
        choices.problem([queries], [keys], packed=False),
        dropout=_DROPOUT if choices.dropout else None,
        longest=(queries, keys) if dense else maxima,
    )
    return Cell(
        problem=problem,
        maxima=None if dense else maxima,
        backend=backend,
        dropout_p=_DROPOUT.p if choices.dropout else 0.0,
    )


def expected_outputs(problem: Problem) -> dict[str, Expected]:
    """Expectations of a call's outputs, whose backward uses what its forward stored."""
    inputs, names = problem.inputs(), problem.outputs
    values, errors = ({name: np.zeros(problem.shape(name)) for name in names} for _ in range(2))
    for part in problem.parts():
        own = part.all_of(inputs)
        bounded = bounds(
            own["Q"], own["K"], own["V"], own["DO"], problem.options(inputs, part), dtype=problem.dtype
        )
        for name in names:
            result = _BOUNDS[name]
            part.of(name, values[name])[...] = bounded[result].value
            part.of(name, errors[name])[...] = bounded[result].error
    pairs = [(problem, problem)]
    if problem.bias:
        # AOTriton's forward multiplies a bias by log2(e) in its type; its backward begins sums with the bias
        pairs.append((replace(problem, factor=np.log2(np.e)), replace(problem, factors_first=True)))
    if problem.bias and problem.dtype != "fp32":
        largest = float(np.abs(inputs["B"]).max(initial=0.0))
        for name in names:
            errors[name] *= 1 + 4 * largest  # a probability's is one rounding, and these four of its score
        errors["L"] += 2 * EPSILON[problem.dtype] * largest
    results = [result for forward, backward in pairs for result in _same_precision(forward, backward)]
    return {
        name: Expected(
            bounded=Bounded(value=values[name], error=errors[name]),
            same_precision=[result[name] for result in results],
            dtype="fp32" if name == "L" else problem.dtype,
        )
        for name in names
    }


def expected_gradients(
    problem: Problem, expected: Mapping[str, Expected], outputs: Mapping[str, Float]
) -> dict[str, Expected]:
    """Expectations with one more result in the same precision: the gradients from the call's own Out and L.

    A backward cannot undo what its forward has rounded.
    """
    inputs, order = problem.inputs(), Order(16)
    stored = {"L": outputs["L"], "D": preprocess(outputs["Out"], inputs["DO"], order=order)}
    made = _gradients(replace(problem, factors_first=True), inputs | stored, order)
    return {
        name: replace(expected[name], same_precision=[*expected[name].same_precision, values])
        for name, values in made.items()
    }


def _same_precision(forward: Problem, backward: Problem) -> Iterator[dict[str, Float]]:
    """What a forward stores, and the gradients from it, in each order of addition."""
    inputs = forward.inputs()
    orders = orders_of("attn_fwd", forward)
    for order, made in zip(orders, same_precision_results("attn_fwd", forward), strict=True):
        delta = preprocess(made["Out"], inputs["DO"], order=order)
        yield made | _gradients(backward, {**inputs, "L": made["L"], "D": delta}, order)


def _gradients(problem: Problem, stored: Mapping[str, Float], order: Order) -> dict[str, Float]:
    """In the same precision, from the inputs, L and D."""
    gradients = {name: np.zeros(problem.shape(name)) for name in problem.outputs[2:]}
    for part in problem.parts():
        own = part.all_of(stored)
        q, k, v, do, lse, delta = (own[name] for name in ("Q", "K", "V", "DO", "L", "D"))
        options = problem.options(stored, part)
        results = attention_backward(
            q, k, v, do, lse, delta, options, dtype=problem.dtype, order=order, binary=order in BINARY
        )
        for name, values in zip(("DQ", "DK", "DV", "DB"), results, strict=True):
            if name in gradients:
                part.of(name, gradients[name])[...] = values
    return gradients


def stored_input(problem: Problem, name: str, values: Float) -> Float:
    """A tensor as the client passes it: (tokens, heads, head_dim), a bias with padded rows."""
    if name == "B":
        spare = -values.shape[-1] % BIAS_ROW
        return np.pad(values, [(0, 0)] * 3 + [(0, spare)], constant_values=np.nan)
    return np.swapaxes(values[0], 0, 1)


def stored_shape(problem: Problem, name: str) -> tuple[int, ...]:
    """Of an output in the client's results."""
    shape = problem.shape(name)
    if name == "DB":
        return (*shape[:-1], -(-shape[-1] // BIAS_ROW) * BIAS_ROW)
    return shape if name == "L" else (shape[2], shape[1], shape[3])


def from_stored(problem: Problem, name: str, stored: Float) -> Float:
    """The client's output as a tensor of the problem."""
    if name == "DB":
        return stored[..., : problem.seqlen_k]
    return stored if name == "L" else np.swapaxes(stored, 0, 1)[None]
