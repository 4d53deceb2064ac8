"""Variable length against dense calls of one sequence each, bit by bit: every word of API level 0.14, both
orders of log-sum-exp.

Rows that belong to no sequence are not numbers. A dense call has at least as many queries as select the image
of the packed one; the further ones have no part in the results of the others, and no gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from kernels.flash.call import BOTTOM_RIGHT
from kernels.flash.sequences import Side

from .device import nothing_written
from .functions import Level

_QUERIES, _KEYS = (13, 0, 64, 5, 129, 32, 7), (40, 0, 64, 71, 33, 96, 7)
_HEADS, _HEADS_K, _HEAD_DIM = 8, 2, 32
_MOST_FEW = 17
"""Calls with fewer queries may take an image of their own."""
_TOKEN_MAJOR = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Packed:
    """Tensors of a call by name, and where sequences are in them."""

    queries: Side
    keys: Side
    tensors: dict[str, Any]

    def of(self, name: str, z: int) -> Any:
        """The rows of a sequence, (heads, rows, head_dim)."""
        side = self.keys if name in {"K", "V", "DK", "DV"} else self.queries
        plane, rows = side.place(z)
        return self.tensors[name][plane, :, rows][0]


def differences(level: Level, *, word: int, window: tuple[int, int] | None, token_major: bool) -> list[str]:
    """Results of sequences that are not those of a dense call, by name and number."""
    torch.manual_seed(word)
    queries, keys = _sides(word)
    names = {"Q": (queries, _HEADS), "K": (keys, _HEADS_K), "V": (keys, _HEADS_K), "DO": (queries, _HEADS)}
    drawn = {name: _tensor(side, heads) for name, (side, heads) in names.items()}
    made = Packed(queries=queries, keys=keys, tensors=drawn)
    layout = token_major * _TOKEN_MAJOR
    found = _call(level, made, word | layout, window)
    wrong = []
    for z, (n_q, n_k) in enumerate(zip(queries.lengths, keys.lengths, strict=True)):
        if not n_q:
            continue
        alone = _alone(level, made, z, layout, window)
        for name, one in alone.items():
            ours = found.tensors["L"][z] if name == "L" else found.of(name, z)
            if not torch.equal(ours, one):
                wrong.append(f"{name} of sequence {z} with {n_q} queries and {n_k} keys")
    return wrong


def _sides(word: int) -> tuple[Side, Side]:
    lengths: tuple[int, ...] = _QUERIES
    lengths_k: tuple[int, ...] = _KEYS
    if word == 0:
        lengths, lengths_k = (65,) * 3, (71,) * 3
    longest, longest_k = max(lengths), max(lengths_k)
    if not word >> 8 & 6:  # every sequence has all keys
        lengths_k = (longest_k,) * len(lengths)
    return (
        Side(mode=word & 0xFF, lengths=lengths, longest=longest, gap=3),
        Side(mode=word >> 8, lengths=lengths_k, longest=longest_k, gap=5),
    )


def _tensor(side: Side, heads: int) -> Any:
    values = torch.randn(side.planes, heads, side.rows, _HEAD_DIM).half()
    return values.masked_fill(~torch.from_numpy(side.within()), math.nan)


def _call(level: Level, made: Packed, word: int, window: tuple[int, int] | None) -> Packed:
    """Forward and backward of the packed call; L as a list by sequence, (heads, rows)."""
    queries, keys = made.queries, made.keys
    count, packed = len(queries.lengths), queries.stacked
    rows = (1, queries.rows) if packed else (count, queries.longest)
    shape = (rows[0] * rows[1], _HEADS) if word & _TOKEN_MAJOR else (rows[0] * _HEADS, rows[1])
    lse = nothing_written(torch.empty(shape))
    t = made.tensors
    out = nothing_written(t["Q"])
    arrays = {
        f"{kind}_{letter}": torch.tensor(array, dtype=torch.int32)
        for letter, side in (("q", queries), ("k", keys))
        for kind, array in zip(("lengths", "positions"), side.arrays, strict=True)
        if array is not None
    }
    numbers = {"sm_scale": 0.2, "word": word, "longest_q": queries.longest, "longest_k": keys.longest}
    if window:
        numbers |= {"masked": 1, "window_left": window[0], "window_right": window[1]}
    inputs = {"Q": t["Q"], "K": t["K"], "V": t["V"], **arrays}
    level.library.call("forward", inputs, {"Out": out, "L": lse}, **numbers)
    results = {f"D{name}": nothing_written(t[name]) for name in "QKV"}
    inputs |= {"Out": out, "DO": t["DO"], "L": lse}
    level.library.call("backward", inputs, results, **numbers)
    heads = (
        lse.view(*rows, _HEADS).transpose(1, 2) if word & _TOKEN_MAJOR else lse.view(rows[0], _HEADS, rows[1])
    )
    by_sequence = []
    for z, length in enumerate(queries.lengths):
        start = queries.starts[z] if packed else 0
        by_sequence.append(heads[0 if packed else z, :, start : start + length])
    return Packed(queries=queries, keys=keys, tensors={"Out": out, "L": by_sequence, **results})


def _alone(level: Level, made: Packed, z: int, layout: int, window: tuple[int, int] | None) -> dict[str, Any]:
    """Results of a dense call of one sequence, with the same order of log-sum-exp: another one takes another
    image."""
    n_q, n_k = made.queries.lengths[z], made.keys.lengths[z]
    more = max(_MOST_FEW - n_q, 0)
    q, k, v, grad = (made.of(name, z).unsqueeze(0).contiguous() for name in ("Q", "K", "V", "DO"))
    q, grad = (torch.nn.functional.pad(x, (0, 0, 0, more)) for x in (q, grad))
    lse = nothing_written(torch.empty((n_q + more, _HEADS) if layout else (_HEADS, n_q + more)))
    numbers = {"sm_scale": 0.2, "word": layout, "longest_q": n_q + more, "longest_k": n_k}
    if window:
        # a bound that hides no key, also of the rows that are added: blocks are cut as in the packed call
        left, right = (n_q + more, n_k - n_q) if BOTTOM_RIGHT in window else window
        numbers |= {"masked": 1, "window_left": left, "window_right": right}
    out, results = (
        nothing_written(q),
        {"DQ": nothing_written(q), "DK": nothing_written(k), "DV": nothing_written(v)},
    )
    inputs = {"Q": q, "K": k, "V": v}
    level.library.call("forward", inputs, {"Out": out, "L": lse}, **numbers)
    inputs |= {"Out": out, "DO": grad, "L": lse}
    level.library.call("backward", inputs, results, **numbers)
    lse = lse.T if layout else lse
    rows = {"Out": out[0, :, :n_q], "L": lse[:, :n_q], "DQ": results["DQ"][0, :, :n_q]}
    return {**rows, "DK": results["DK"][0], "DV": results["DV"][0]}
