"""Attention problems as callers pose them, and the operator values that the C++ library derives from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Literal

import numpy as np

from aotforge.verify.interpreter.number_formats import STORAGE, DType, decode, encode
from aotforge.verify.specials import special_rows
from aotforge.verify.tensors import Float, Guarded, Layout

from .philox import keep_mask
from .reference import Mask, Options
from .sequences import Part, Side, Varlen, parts

DTYPE_KEY: Mapping[DType, int] = {"fp32": 1, "fp16": 2, "bf16": 3}
DENSE = Layout()
BiasKind = Literal["normal", "masked", "lowest"]
Draw = Literal["normal", "equal", "low", "special", "small"]
TOP_LEFT, BOTTOM_RIGHT = -2147483647, -2147483646
"""Windows that depend on the lengths of a sequence."""
_UNMAPPED = 0x10000
"""An address at which a kernel must not read."""


@dataclass(frozen=True, kw_only=True)
class Bias:
    """An additive bias. "masked": the first row is -inf, the second but for one value, and more at random;
    "lowest": the same
    with the type's lowest finite number. Dimensions of (batch, heads, rows) in `broadcast` have one element.
    """

    kind: BiasKind = "normal"
    broadcast: tuple[int, ...] = ()

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Float:
        """Values of a shape whose broadcast dimensions are 1."""
        values = rng.standard_normal(shape)
        if self.kind == "normal":
            return values
        removed = rng.random(shape) < 0.25
        removed[:, :, :2, :] = True
        removed[:, :, 1:2, shape[-1] // 2 : shape[-1] // 2 + 1] = False  # none without keys
        lowest = -np.inf if self.kind == "masked" else -_largest(dtype)
        return np.asarray(np.where(removed, lowest, values), dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class Dropout:
    """Probability and the two halves of the offset, of which the second comes by value."""

    p: float = 0.25
    seed: int = 0x1234_5678_9ABC_DEF0
    offset1: int = 2**33 + 5
    offset2: int = 7


@dataclass(frozen=True, kw_only=True)
class Case:
    """One attention problem. A window of None on one side has no bound there.

    With `varlen`, `batch` is its number of sequences, `seqlen_q` and `seqlen_k` are at least its longest
    lengths.
    `mixed`: every tensor has another order of axes than its neighbours.
    `draw`: "equal" inputs are all one large number, whose products' sums still fit float32; "low" ones have
    scores near -120; "special" ones have rows of zeros, of subnormal and (of V) of large numbers, "small" ones
    no large rows.
    """

    dtype: DType = "fp16"
    batch: int = 1
    heads_q: int = 1
    heads_k: int = 1
    seqlen_q: int = 16
    seqlen_k: int = 16
    head_dim: int = 32
    head_dim_v: int | None = None
    window_left: int | None = None
    window_right: int | None = None
    bias: Bias | None = None
    dropout: Dropout | None = None
    sm_scale: float = 0.25
    layout: Layout = DENSE
    seed: int = 0
    draw: Draw = "normal"
    varlen: Varlen | None = None
    mixed: bool = False

    def side(self, *, keys: bool) -> Side:
        """Sequences of the queries or of the keys."""
        longest = self.seqlen_k if keys else self.seqlen_q
        if self.varlen is None:
            return Side(mode=0, lengths=(longest,) * self.batch, longest=longest)
        lengths = self.varlen.keys if keys else self.varlen.queries
        mode = self.varlen.word >> 8 if keys else self.varlen.word & 0xFF
        if mode >> 1 & 3 == 0:  # every sequence has the longest length
            lengths = (longest,) * self.batch
        return Side(mode=mode, lengths=lengths, longest=longest, gap=self.varlen.gap)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor by its operator value's name: (planes, heads, rows, columns); L and D without
        columns."""
        if name in {"B", "DB"}:
            return (self.batch, self.heads_q, self.seqlen_q, self.seqlen_k)
        keys = name in {"K", "V", "DK", "DV"}
        side = self.side(keys=keys)
        if name in {"L", "D"}:
            return (
                (1, self.heads_q, side.rows) if self.lse_packed else (self.batch, self.heads_q, self.seqlen_q)
            )
        of_values = self.head_dim_v is not None and name in {"V", "Out", "DO", "DV"}
        columns = (self.head_dim_v if of_values else None) or self.head_dim
        return (side.planes, self.heads_k if keys else self.heads_q, side.rows, columns)

    @property
    def bias_shape(self) -> tuple[int, ...]:
        """Of B as it is stored: its stride is 0 where the size is 1 here."""
        broadcast = self.bias.broadcast if self.bias else ()
        return tuple(1 if axis in broadcast else size for axis, size in enumerate(self.shape("B")))

    def within(self, name: str) -> Mask | None:
        """Elements of a tensor that belong to a sequence, to be broadcast; None: all."""
        if self.varlen is None or name in {"B", "DB"}:
            return None
        if name not in {"L", "D"}:
            return self.side(keys=name in {"K", "V", "DK", "DV"}).within()
        found = np.zeros(self.shape(name), dtype=np.bool_)
        for part in self.parts():
            planes, rows = part.lse
            found[planes, :, rows] = True
        return found

    @property
    def lse_packed(self) -> bool:
        """Rows of L and D are counted from the first token of all."""
        return self.varlen is not None and self.varlen.lse != "rows" and self.side(keys=False).stacked

    @property
    def lse_swapped(self) -> bool:
        """L and D are stored token by token, all heads of one together."""
        return self.varlen is not None and self.varlen.lse == "TH" and self.lse_packed

    def parts(self) -> list[Part]:
        """What is independent of everything else and has lengths of its own."""
        if self.varlen is not None:
            return list(parts(self.side(keys=False), self.side(keys=True), packed=self.lse_packed))
        every = (slice(0, self.batch), slice(None))
        return [Part(first=0, count=self.batch, queries=every, keys=every, lse=every)]

    def inputs(self) -> dict[str, Float]:
        """Q, K, V, DO and, with a bias, B, already rounded to the case's dtype."""
        rng = np.random.default_rng(self.seed)
        drawn = {name: self._drawn(name, rng) for name in ("Q", "K", "V", "DO")}
        if self.bias:
            drawn["B"] = self.bias.draw(rng, self.bias_shape, self.dtype)
        return {name: decode(encode(values, self.dtype), self.dtype) for name, values in drawn.items()}

    def _drawn(self, name: str, rng: np.random.Generator) -> Float:
        values = rng.standard_normal(self.shape(name))
        if self.draw == "equal" and name != "DO":
            large = 60000.0 if self.dtype == "fp16" else 133120.0
            # what dropout keeps is scaled up
            return np.full(values.shape, large / 2 if name == "V" and self.dropout else large)
        if self.draw == "low" and name in {"Q", "K"}:
            # of one column alone: with all of them dQ would be a sum that cancels, which has no digits to
            # compare
            values = values.copy()
            values[..., 0] = (120 / abs(self.sm_scale)) ** 0.5 * (1 if name == "Q" else -1)
            return values
        if self.draw in {"special", "small"}:
            # infinities and NaN have no defined result where a mask or a window leaves keys out
            large = min(_largest(self.dtype) / 4, 1e34) if name == "V" and self.draw == "special" else 0.0
            return special_rows(values, self.dtype, large)
        return values

    def options(self, inputs: Mapping[str, Float], part: Part | None = None) -> Options:
        """What the references need beside the tensors, of a part of a call (default: of a dense call).

        Numbers are as float32 has them: so they reach a kernel.
        """
        first, count = (part.first, part.count) if part else (0, self.batch)
        n_q, n_k = (self.side(keys=keys).lengths[first] if self.batch else 0 for keys in (False, True))
        keep, dropout_p = None, 0.0
        if self.dropout:
            dropout_p = float(np.float32(self.dropout.p))
            keep = keep_mask(
                seed=self.dropout.seed, offset=self.dropout.offset1 + self.dropout.offset2, dropout_p=dropout_p,
                planes=range(first, first + count), heads=self.heads_q, rows=n_q, columns=n_k,
            )  # fmt: skip
        left, right = self.window_left, self.window_right
        if left in {TOP_LEFT, BOTTOM_RIGHT}:
            left = n_q
        if right in {TOP_LEFT, BOTTOM_RIGHT}:
            right = 0 if right == TOP_LEFT else n_k - n_q
        return Options(
            sm_scale=float(np.float32(self.sm_scale)),
            window_left=left,
            window_right=right,
            bias=np.broadcast_to(inputs["B"], self.shape("B")) if self.bias else None,
            keep=keep,
            dropout_p=dropout_p,
        )


def _largest(dtype: DType) -> float:
    """The largest finite number of a type."""
    if dtype == "bf16":
        return float.fromhex("0x1.fep+127")
    return float(np.finfo(STORAGE[dtype]).max)


def _window(case: Case) -> dict[str, int]:
    """The mask and its window; resolved and clamped but with sequences of their own lengths."""
    if case.bias or case.window_left is case.window_right is None:
        return {"mask": 2 if case.bias else 0, "window_left": 0, "window_right": 0}
    left = case.seqlen_q if case.window_left is None else case.window_left
    right = case.seqlen_k if case.window_right is None else case.window_right
    if case.varlen is None:
        left = min(max(left, -case.seqlen_k), case.seqlen_q)
        right = min(max(right, -case.seqlen_q), case.seqlen_k)
    return {"mask": 1, "window_left": left, "window_right": right}


_STRIDES = {
    "Q": "qz qh qm", "K": "kz kh kn", "V": "vz vh vn", "Out": "oz oh om", "DO": "doz doh dom",
    "DK": "dkz dkh dkn", "DV": "dvz dvh dvn", "DQ": "dqz dqh dqm", "B": "bz bh bm bn", "DB": "dbz dbh dbm dbn",
    "L": "lz lh lm", "D": "dz dh dm", "R": "rz rh rm rn",
}  # fmt: skip


_ORDERS = {
    name: Layout(order=order, row_padding=1, offset=65)
    for name, order in zip(
        ("Q", "K", "V", "Out", "DO", "DQ", "DK", "DV"),
        cycle(((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))),
        strict=False,
    )
}


def tensor_of(case: Case, name: str, values: Float | None = None) -> Guarded:
    """A tensor as the call has it; three elements between rows of L and D, which need not be dense."""
    if name in {"L", "D"}:
        within, shape = case.within(name), case.shape(name)
        if case.lse_swapped:
            shape = (shape[0], shape[2], shape[1])
            values = None if values is None else np.swapaxes(values, 1, 2)
            within = None if within is None else np.swapaxes(within, 1, 2)
        return Guarded(shape, "fp32", Layout(row_padding=3), values, within)
    if name in {"B", "DB"}:
        stored = case.bias_shape if name == "B" else case.shape(name)
        layout = (
            case.layout
            if case.layout.order
            else Layout(row_padding=-stored[3] % 16, offset=case.layout.offset)
        )
        return Guarded(stored, case.dtype, layout, values)
    layout = _ORDERS[name] if case.mixed else case.layout
    return Guarded(case.shape(name), case.dtype, layout, values, case.within(name))


def arrays_of(case: Case) -> dict[str, Guarded]:
    """Further inputs: what describes sequences, and the generator's state."""
    found: dict[str, Guarded] = {}
    for keys, letter in ((False, "q"), (True, "k")):
        for number, array in enumerate(case.side(keys=keys).arrays):
            if array is not None:
                found[f"seqinfo_{letter}{number}"] = Guarded(
                    (len(array),), "i32", DENSE, np.array(array, np.int32)
                )
    if case.dropout:
        for name, number in (("philox_seed", case.dropout.seed), ("philox_offset1", case.dropout.offset1)):
            found[name] = Guarded((1,), "u64", DENSE, np.array([number], np.uint64))
    return found


def values_of(case: Case, tensors: Mapping[str, Guarded]) -> dict[str, int | float]:
    """The operator values that the C++ library derives from such a call. Pointers without a tensor must not
    be read."""
    values: dict[str, int | float] = {
        **dict.fromkeys(("B", "DB", "L", "seqinfo_q0", "seqinfo_q1", "seqinfo_k0", "seqinfo_k1"), 0),
        **dict.fromkeys((f"stride_{s}" for names in _STRIDES.values() for s in names.split()), 0),
        **dict.fromkeys(("philox_seed_output", "philox_offset_output"), 0),
        "philox_seed": _UNMAPPED,
        "philox_offset1": _UNMAPPED,
        "philox_offset2": case.dropout.offset2 if case.dropout else 0,
        "batch": case.batch,
        "num_head_q": case.heads_q,
        "num_head_k": case.heads_k,
        "group": case.heads_q // case.heads_k,
        "seqlen_q": case.seqlen_q,
        "seqlen_k": case.seqlen_k,
        "head_dim": case.head_dim,
        "head_dim_v": case.head_dim_v or case.head_dim,
        "width": max(case.head_dim, case.head_dim_v or 0),
        "sm_scale": case.sm_scale,
        "dropout_p": case.dropout.p if case.dropout else 0.0,
        "dtype": DTYPE_KEY[case.dtype],
        **_window(case),
        "dropout": int(case.dropout is not None),
        "varlen_bits": case.varlen.word if case.varlen else 0,
        "lse_packed": int(case.lse_packed),
    }
    for name, tensor in tensors.items():
        values[name] = tensor.address
        if name in _STRIDES:
            values |= _strides(case, name, tensor)
    return values


def _strides(case: Case, name: str, tensor: Guarded) -> dict[str, int]:
    strides = list(tensor.strides)
    if name == "B":
        strides = [0 if size == 1 else stride for size, stride in zip(case.bias_shape, strides, strict=True)]
        strides[3] = 1
    if name in {"L", "D"} and case.lse_swapped:
        strides = [strides[0], strides[2], strides[1]]
    if name in {"L", "D"} and case.lse_packed:
        strides[0] = 0  # rows are counted from the first token of all
    names = _STRIDES[name].split()
    return {f"stride_{axis}": stride for axis, stride in zip(names, strides[: len(names)], strict=True)}
