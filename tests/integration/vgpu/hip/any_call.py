"""Attention calls drawn from everything that PyTorch's gates let through."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from aotforge.verify.tensors import Layout
from kernels.flash.call import BOTTOM_RIGHT, TOP_LEFT, Bias, Case, Dropout
from kernels.flash.sequences import Varlen

LEVELS = ("0.11.2b", "0.12.1b", "0.13b", "0.14.2b")
COMPACT, PADDED, STRIDED, USED_KEYS = 0x0B0B, 0x0202, 0x1313, 0x150B
_LAYOUTS = (
    Layout(), Layout(order=(0, 2, 1)), Layout(order=(1, 0, 2), row_padding=8),
        Layout(order=(2, 0, 1), row_padding=3, offset=37),
)  # fmt: skip
FEW = 10_000
"""Calls from this number on have few queries."""
_WORK = 3_000_000
"""Products of a call at most: a virtual GPU computes them one after another."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A problem at an API level. `backward`, `db`: what is wanted beside the forward pass."""

    level: str
    case: Case
    backward: bool = True
    db: bool = True


def drawn(number: int) -> Call:
    """The call of this number: always the same. Those from FEW on have 1 to 16 queries and head_dim 8 to 512,
    in 16 bits, without dropout and bias.
    """
    few = number >= FEW
    rng = random.Random(number)
    heads_k, batch = rng.randint(1, 2), rng.randint(1, 3)
    dim = rng.choice([rng.randint(1, 512), 8 * rng.randint(1, 64), rng.choice([32, 64, 96, 128, 256, 512])])
    level = rng.choice(LEVELS)
    own_dim = level != LEVELS[0] and rng.random() < 0.3
    case = Case(
        dtype=rng.choice(("fp16", "bf16", "fp32")),
        batch=batch,
        heads_q=heads_k * rng.randint(1, 3),
        heads_k=heads_k,
        seqlen_q=rng.choice([rng.randint(0, 90), rng.randint(1, 20), 1]),
        seqlen_k=rng.choice([rng.randint(0, 90), rng.randint(1, 20), 1]),
        head_dim=dim,
        head_dim_v=rng.randint(1, 512) if own_dim else None,
        sm_scale=rng.choice([dim**-0.5, dim**-0.5, 0.3, -0.1, 0.0]),
        layout=rng.choice(_LAYOUTS),
        mixed=rng.random() < 0.3,
        dropout=Dropout(p=rng.choice([0.1, 0.5, 0.9]), seed=rng.getrandbits(62))
        if rng.random() < 0.4
        else None,
        seed=number,
    )
    if few:
        case = replace(
            case,
            dtype=rng.choice(("fp16", "bf16")),
            seqlen_q=rng.randint(1, 16),
            seqlen_k=rng.choice([rng.randint(1, 600), rng.randint(1, 40)]),
            head_dim=max(dim, 8),
            head_dim_v=None if case.head_dim_v is None else max(case.head_dim_v, 8),
            dropout=None,
        )
    case = _smaller(case)
    mask = rng.choice(("none", "causal", "window") if few else ("none", "causal", "window", "bias"))
    if mask == "bias":
        bias = Bias(
            kind=rng.choice(("normal", "masked", "lowest")),
            broadcast=tuple(axis for axis in range(3) if rng.random() < 0.3),
        )
        return Call(level=level, case=replace(case, bias=bias), db=rng.random() < 0.7)
    if rng.random() < 0.5:
        level, case = _packed(rng, case)
    if mask == "causal":
        side = rng.choice((TOP_LEFT, BOTTOM_RIGHT))
        case = replace(case, window_left=side, window_right=side)
    if mask == "window":
        n_q, n_k = case.seqlen_q, case.seqlen_k
        left = rng.choice([None, rng.randint(-n_k - 2, n_q + 2), rng.randint(0, 9), 2**31 - 1])
        right = rng.choice([rng.randint(-n_q - 2, n_k + 2), rng.randint(0, 9), BOTTOM_RIGHT, 0])
        case = replace(case, window_left=left, window_right=right)
    # PyTorch differentiates no call with lengths of used keys
    backward = case.varlen is None or case.varlen.word not in (STRIDED, USED_KEYS)
    return Call(level=level, case=case, backward=backward)


def _smaller(case: Case) -> Case:
    """With shorter sequences where the call is too much work."""
    work = (
        case.batch
        * case.heads_q
        * case.seqlen_q
        * case.seqlen_k
        * (case.head_dim + (case.head_dim_v or case.head_dim))
    )
    if work <= _WORK:
        return case
    factor = (_WORK / work) ** 0.5
    return replace(case, seqlen_q=int(case.seqlen_q * factor), seqlen_k=int(case.seqlen_k * factor))


def _packed(rng: random.Random, case: Case) -> tuple[str, Case]:
    """The same with sequences of their own lengths, and a level that has their form."""
    word, levels = rng.choice(
        [
            (COMPACT, LEVELS),
            (COMPACT, LEVELS),
            (PADDED, LEVELS),
            (STRIDED, LEVELS[1:3]),
            (USED_KEYS, LEVELS[3:]),
        ]
    )
    level = rng.choice(levels)
    lengths = {
        side: tuple(rng.choice((0, longest, rng.randint(0, longest))) for _ in range(case.batch))
        for side, longest in (("queries", case.seqlen_q), ("keys", case.seqlen_k))
    }
    lse = (
        "rows"
        if level == LEVELS[0]
        else rng.choice(("HT", "TH"))
        if level == LEVELS[-1] and word != PADDED
        else "HT"
    )
    varlen = Varlen(word=word, gap=rng.randint(0, 4), lse=lse, **lengths)  # type: ignore[arg-type]
    head_dim_v = None if level == LEVELS[0] else case.head_dim_v
    return level, replace(case, varlen=varlen, head_dim_v=head_dim_v)
