"""Calls of attention over pages: sequences, their pages in a permuted order, and tensors as a caller has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from aotforge.verify.interpreter.number_formats import DType, decode, encode, is_exact
from aotforge.verify.tensors import Float, Guarded, Layout, dtype_of

Mask = npt.NDArray[np.bool_]
DENSE = Layout()
SPARE = 2
"""Pages that no sequence has, to which entries of the block table beyond a sequence's end point."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A call: `queries` and `keys` count those of each sequence. `split_keys` None: one split.

    `low`: scores are near -120, where what is masked must not count as 0. `heads_outside`: the cache has the
    rows of a head of a page one after the other. `scale_heads`: key heads have scales of their own.
    `padding` elements are between rows of all tensors.
    """

    dtype: DType
    cache: DType
    head_dim: int
    queries: tuple[int, ...] = (1,)
    keys: tuple[int, ...] = (16,)
    heads_k: int = 1
    group: int = 1
    page_size: int = 16
    split_keys: int | None = None
    causal: bool = True
    window_left: int = -1
    softcap: float = 0.0
    sinks: bool = False
    lse: bool = True
    sm_scale: float = 0.25
    low: bool = False
    heads_outside: bool = False
    scale_heads: bool = False
    padding: int = 0

    @property
    def heads_q(self) -> int:
        """Of all groups."""
        return self.heads_k * self.group

    @property
    def total_q(self) -> int:
        """Queries of all sequences."""
        return sum(self.queries)

    @property
    def splits(self) -> int:
        """In how many parts the keys are divided."""
        longest = max(self.keys, default=0)
        return 1 if self.split_keys is None else max(-(-longest // self.split_keys), 1)

    @property
    def scaled(self) -> bool:
        """The cache has a type of its own, and scales."""
        return self.cache != self.dtype

    @property
    def scales(self) -> tuple[Float, Float]:
        """Of K and V for each key head, as float32 has them."""
        if not self.scaled:
            return np.ones(self.heads_k), np.ones(self.heads_k)
        heads = 1 + 0.25 * self.scale_heads * np.arange(self.heads_k)
        factor = heads / 32 if is_exact(self.cache) else heads * 0.75
        k, v = (np.asarray(factor * size, np.float32).astype(np.float64) for size in (1.1, 0.9))
        return k, v

    @property
    def scales_q(self) -> tuple[Float, Float]:
        """The same for each head of Q: (heads, 1, 1)."""
        k, v = (np.repeat(scale, self.group)[:, None, None] for scale in self.scales)
        return k, v

    @property
    def pages(self) -> int:
        """Of all sequences, and spare ones."""
        return sum(-(-n // self.page_size) for n in self.keys) + SPARE

    def starts(self) -> list[int]:
        """First query of each sequence, and the end of the last one."""
        return [0, *(int(n) for n in np.cumsum(self.queries))]

    def table(self) -> npt.NDArray[np.int32]:
        """The block table: pages of all sequences in a random order; spare ones beyond the ends."""
        rng = np.random.default_rng(self.pages)
        order = rng.permutation(self.pages)
        spare, free = order[:SPARE], iter(order[SPARE:])
        width = max((-(-n // self.page_size) for n in self.keys), default=0) + 1
        table = np.resize(spare, (len(self.keys), width)).astype(np.int32)
        for row, n in zip(table, self.keys, strict=True):
            for index in range(-(-n // self.page_size)):
                row[index] = next(free)
        return table

    def rows(self, sequence: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """(page, row) of each key of a sequence."""
        keys = np.arange(self.keys[sequence])
        return self.table()[sequence][keys // self.page_size].astype(np.intp), keys % self.page_size

    def used(self) -> Mask:
        """Which rows of pages hold keys: (pages, page_size, 1, 1)."""
        used = np.zeros((self.pages, self.page_size, 1, 1), dtype=np.bool_)
        for sequence in range(len(self.keys)):
            used[self.rows(sequence)] = True
        return used

    def visible(self, sequence: int, split: int | None = None) -> Mask:
        """Which query of a sequence sees which key, of one split or of all: (queries, keys)."""
        n_q, n_k = self.queries[sequence], self.keys[sequence]
        distance = np.arange(n_k)[None, :] - (np.arange(n_q) + n_k - n_q)[:, None]
        seen = np.ones(distance.shape, dtype=np.bool_)
        if self.causal:
            seen &= distance <= 0
        if self.window_left >= 0:
            seen &= distance >= -self.window_left
        if split is not None and self.split_keys is not None:
            seen &= (np.arange(n_k) // self.split_keys == split)[None, :]
        return seen

    def numbers(self) -> Mapping[str, Float]:
        """Q, K, V and sinks as they are stored, without scales."""
        return _numbers(self)

    def tensor(self, name: str, values: Float | None = None, within: Mask | None = None) -> Guarded:
        """A tensor of the call by its operator value's name."""
        shape, kind, layout = self._described(name)
        return Guarded(shape, kind, layout, values, within)

    def _described(self, name: str) -> tuple[tuple[int, ...], DType, Layout]:
        if name in {"K", "V"}:
            order = (0, 2, 1) if self.heads_outside else ()
            padding = self.padding if name == "K" else 2 * self.padding
            shape: tuple[int, ...] = (self.pages, self.page_size, self.heads_k, self.head_dim)
            return shape, self.cache, Layout(order=order, row_padding=padding)
        heads = (self.total_q, self.heads_q)
        if name in {"Q", "Out"}:
            padding = self.padding if name == "Q" else 2 * self.padding
            return (*heads, self.head_dim), self.dtype, Layout(row_padding=padding)
        if name == "O_part":
            return (*heads, self.splits, self.head_dim), "fp32", DENSE
        return ((*heads, self.splits) if name == "L_part" else heads), "fp32", DENSE

    def lists(self) -> dict[str, Guarded]:
        """Lengths, tables, scales and sinks."""
        arrays: dict[str, tuple[DType, npt.NDArray[np.generic]]] = {
            "block_table": ("i32", self.table()),
            "cu_seqlens_q": ("i32", np.array(self.starts(), np.int32)),
            "seqused_k": ("i32", np.array(self.keys, np.int32)),
        }
        if self.scaled:
            count = self.heads_k if self.scale_heads else 1
            arrays |= {f"{x}_scale": ("fp32", s[:count]) for x, s in zip("kv", self.scales, strict=True)}
        if self.sinks:
            arrays["sinks"] = ("fp32", self.numbers()["sinks"])
        return {name: Guarded(values.shape, kind, DENSE, values) for name, (kind, values) in arrays.items()}

    def values(self, tensors: Mapping[str, Guarded]) -> dict[str, int | float]:
        """The operator's values; pointers without a tensor are 0."""
        names = "Q K V Out L O_part L_part sinks k_scale v_scale block_table cu_seqlens_q seqused_k"
        values: dict[str, int | float] = dict.fromkeys(names.split(), 0)
        for name, axes in _STRIDES.items():
            tensor = tensors.get(name) or self.tensor(name)
            values |= {f"stride_{a}": s for a, s in zip(axes.split(), tensor.strides, strict=False)}
        values |= {name: tensor.address for name, tensor in tensors.items()}
        return values | {
            "stride_table": self.table().shape[1],
            "stride_scale": int(self.scale_heads),
            "batch": len(self.queries),
            "num_head_q": self.heads_q,
            "num_head_k": self.heads_k,
            "group": self.group,
            "rows": self.group * max(self.queries, default=0),
            "page_size": self.page_size,
            "num_splits": self.splits,
            "split_keys": self.split_keys or max(self.keys, default=0),
            "rows_combined": self.total_q * self.heads_q if self.splits > 1 else 0,
            "causal": int(self.causal),
            "window_left": self.window_left,
            "sm_scale": self.sm_scale,
            "softcap": self.softcap,
            "head_dim": self.head_dim,
        }


_STRIDES = {"Q": "qm qh", "K": "kp kn kh", "V": "vp vn vh", "Out": "om oh", "L": "lm lh"}


@lru_cache(maxsize=32)
def _numbers(problem: Problem) -> Mapping[str, Float]:
    rng = np.random.default_rng(7)
    drawn = {name: rng.standard_normal(problem.tensor(name).shape) for name in ("Q", "K", "V")}
    if is_exact(problem.cache):
        drawn |= {name: np.clip(np.rint(32 * drawn[name]), -128, 127) for name in ("K", "V")}
    if problem.low:
        size = (120 / abs(problem.sm_scale) / float(problem.scales[0][0])) ** 0.5
        drawn["Q"][..., 0], drawn["K"][..., 0] = size, -size
    types = {"Q": problem.dtype, "K": problem.cache, "V": problem.cache}
    numbers = {name: np.asarray(decode(encode(x, types[name]), types[name])) for name, x in drawn.items()}
    sinks = rng.standard_normal(problem.heads_q).astype(np.float32)
    return {**numbers, "sinks": sinks.astype(np.float64)}


def problems(keys: Mapping[str, int]) -> list[tuple[str, Problem]]:
    """Named calls of a functional: of few rows and of many, with one split and with several."""
    dtype, cache, width = dtype_of(keys["dtype"]), dtype_of(keys["cache"]), keys["head_dim"]

    def problem(**changes: object) -> Problem:
        return Problem(dtype=dtype, cache=cache, head_dim=width, **changes)  # type: ignore[arg-type]

    eight = (1, 1, 1, 1, 1, 1, 1)
    return [
        ("lengths around a page", problem(queries=eight, keys=(0, 1, 15, 16, 17, 100, 5), group=4)),
        ("several queries", problem(queries=(3, 0, 1, 2, 3), keys=(40, 9, 17, 33, 2), heads_k=2, group=2,
                                    page_size=32, padding=16)),
        ("heads of their own", problem(queries=(1, 2), keys=(70, 47), heads_k=3, page_size=48, causal=False,
                                       heads_outside=True, scale_heads=True)),
        ("splits", problem(queries=(1, 2, 1), keys=(130, 33, 0), group=8, split_keys=48)),
        ("window", problem(queries=(2, 1), keys=(90, 12), group=4, window_left=20)),
        ("window of nothing but itself", problem(queries=(1,), keys=(37,), group=2, window_left=0)),
        ("window and splits", problem(queries=(2, 1), keys=(100, 20), group=4, window_left=40, split_keys=32,
                                      page_size=64)),
        ("soft cap and sinks", problem(queries=(1, 2, 1), keys=(50, 20, 0), group=4, softcap=2.0, sinks=True)),
        ("no log-sum-exp", problem(queries=(1,), keys=(20,), group=2, lse=False, sinks=True, causal=False)),
        ("low scores", problem(queries=(1, 2), keys=(19, 33), group=4, low=True)),
        ("no queries", problem(queries=(0,), keys=(20,), group=4)),
        ("many rows", problem(queries=(5, 1), keys=(71, 40), group=8, page_size=32)),
        ("a chunk of a prompt", problem(queries=(70, 20), keys=(100, 7), heads_k=2, window_left=30,
                                        split_keys=64, softcap=3.0)),
    ]  # fmt: skip
