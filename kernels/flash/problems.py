"""The attention problems of the verifier: for each functional those on which a wrong image differs from a
correct one.

Each problem is posed twice: with aligned tensors of the compiled head_dim, which an image with hints may
serve, and
as another call, unaligned or with a smaller head_dim, whose padding is not a number.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from aotforge.verify.tensors import Layout, dtype_of

from .call import BOTTOM_RIGHT, TOP_LEFT, Bias, Dropout
from .call import Case as Problem
from .sequences import Varlen

STRIDED = Layout(order=(0, 2, 1))  # a view of (batch, rows, heads, head_dim)
SPARE = Layout(spare_rows=3)  # elements after each head's last row are not numbers
UNALIGNED = Layout(order=(1, 0, 2), row_padding=1, offset=37)
WIDER = Layout(row_padding=8)  # columns after the head_dim's are not numbers
BASE = Problem(sm_scale=0.15)
COMPACT, CACHE = 0x0B0B, 0x040B
# of each side: lengths and positions in arrays, cumulative lengths that are positions in planes, planes one
# after the other
INDIVIDUAL_REUSED, REUSED_INDIVIDUAL, LONGEST, LONGEST_COMPACT = 0x0A15, 0x150A, 0x0505, 0x0B05
_LENGTHS = Varlen(word=COMPACT, queries=(13, 0, 37, 1), keys=(40, 33, 0, 64))
_SEVERAL = replace(BASE, batch=4, heads_q=4, heads_k=2, seqlen_q=37, seqlen_k=70)
_FEW_LENGTHS = Varlen(word=COMPACT, queries=(11, 4), keys=(33, 65), gap=5)
_FEW = replace(BASE, batch=2, heads_q=2, heads_k=2, seqlen_q=11, seqlen_k=90)
FULL = {
    "ragged": replace(BASE, heads_q=2, heads_k=2, seqlen_q=129, seqlen_k=77, layout=SPARE),
    "complete blocks": replace(BASE, seqlen_q=128, seqlen_k=128),
    "other strides": replace(BASE, batch=2, heads_q=2, heads_k=2, seqlen_q=17, seqlen_k=20, mixed=True),
    "grouped": replace(BASE, heads_q=4, heads_k=2, seqlen_q=62, seqlen_k=63, batch=2),
    "strided": replace(BASE, heads_q=2, heads_k=2, seqlen_q=33, seqlen_k=70, layout=STRIDED),
    "one row": replace(BASE, heads_q=2, heads_k=1, seqlen_q=1, seqlen_k=125),
    "few rows": replace(BASE, heads_q=2, heads_k=2, seqlen_q=13, seqlen_k=129, layout=STRIDED),
    "few rows, many keys": replace(BASE, seqlen_q=13, seqlen_k=300, layout=SPARE),
    "few rows, grouped": replace(BASE, heads_q=10, heads_k=2, seqlen_q=3, seqlen_k=70, mixed=True),
    "one key": replace(BASE, seqlen_q=20, seqlen_k=1, layout=SPARE),
    "no keys": replace(BASE, seqlen_q=20, seqlen_k=0),
    "no keys, few rows": replace(BASE, seqlen_q=5, seqlen_k=0),
    "no queries": replace(BASE, heads_q=2, heads_k=1, seqlen_q=0, seqlen_k=20),
    "low scores": replace(BASE, seqlen_q=64, seqlen_k=192, draw="low"),
    "compact": replace(_SEVERAL, varlen=_LENGTHS),
    "individual lengths": replace(_SEVERAL, varlen=replace(_LENGTHS, word=INDIVIDUAL_REUSED, gap=3)),
    "individual keys": replace(_SEVERAL, varlen=replace(_LENGTHS, word=REUSED_INDIVIDUAL, gap=3)),
    "places of the longest": replace(_SEVERAL, varlen=replace(_LENGTHS, word=LONGEST, lse="TH")),
    "individual lengths, few rows": replace(_FEW, varlen=replace(_FEW_LENGTHS, word=INDIVIDUAL_REUSED)),
    "individual keys, few rows": replace(_FEW, varlen=replace(_FEW_LENGTHS, word=REUSED_INDIVIDUAL)),
    "places of the longest, few rows": replace(_FEW, varlen=replace(_FEW_LENGTHS, word=LONGEST_COMPACT, lse="TH")),
    "few rows of a cache": replace(
        BASE, batch=2, heads_q=2, heads_k=2, seqlen_q=9, seqlen_k=90,
        varlen=Varlen(word=CACHE, queries=(9, 4), keys=(33, 65), lse="TH"),
    ),
}  # fmt: skip
WINDOW = {
    "top-left": replace(
        BASE, heads_q=2, heads_k=2, seqlen_q=129, seqlen_k=77, window_right=0, layout=SPARE
    ),
    "bottom-right": replace(BASE, seqlen_q=70, seqlen_k=129, window_right=59, layout=SPARE),
    "rows without keys": replace(BASE, seqlen_q=70, seqlen_k=40, window_right=-30),
    "complete blocks": replace(BASE, seqlen_q=128, seqlen_k=128, window_right=0),
    "grouped": replace(BASE, heads_q=4, heads_k=2, seqlen_q=40, seqlen_k=33, window_right=-7, batch=2),
    "strided": replace(
        BASE, heads_q=2, heads_k=2, seqlen_q=33, seqlen_k=70, window_right=37, layout=STRIDED
    ),
    "one row": replace(BASE, heads_q=2, seqlen_q=1, seqlen_k=77, window_right=76),
    "few rows": replace(BASE, heads_q=2, heads_k=2, seqlen_q=13, seqlen_k=129, window_right=116),
    "few rows, many keys": replace(BASE, seqlen_q=13, seqlen_k=300, window_right=287, layout=SPARE),
    "few rows, grouped": replace(
        BASE, batch=2, heads_q=6, heads_k=1, seqlen_q=5, seqlen_k=90, window_left=TOP_LEFT, window_right=BOTTOM_RIGHT,
        varlen=Varlen(word=CACHE, queries=(5, 2), keys=(33, 65), lse="TH"),
    ),
    "few rows, top-left": replace(BASE, seqlen_q=13, seqlen_k=40, window_right=0, layout=STRIDED),
    "no keys": replace(BASE, seqlen_q=20, seqlen_k=0, window_right=0),
    "no keys, few rows": replace(BASE, seqlen_q=5, seqlen_k=0, window_right=-5),
    "no queries": replace(BASE, heads_q=2, heads_k=1, seqlen_q=0, seqlen_k=20, window_right=0),
    "wide window": replace(BASE, seqlen_q=20, seqlen_k=40, window_left=2**31 - 1, window_right=2**31 - 1),
    "both sides": replace(BASE, seqlen_q=150, seqlen_k=170, window_left=13, window_right=29, layout=SPARE),
    "diagonal": replace(BASE, seqlen_q=70, seqlen_k=70, window_left=0, window_right=0),
    "after the diagonal": replace(BASE, seqlen_q=70, seqlen_k=66, window_left=-2, window_right=4),
    "before the diagonal": replace(BASE, heads_q=2, seqlen_q=66, seqlen_k=70, window_left=20, window_right=-6),
    "left only": replace(BASE, seqlen_q=150, seqlen_k=60, window_left=9),
    "nothing": replace(BASE, seqlen_q=33, seqlen_k=33, window_left=3, window_right=-4),
    "compact": replace(_SEVERAL, window_left=TOP_LEFT, window_right=TOP_LEFT, varlen=_LENGTHS),
    "individual lengths": replace(_SEVERAL, window_left=24, window_right=BOTTOM_RIGHT,
        varlen=replace(_LENGTHS, word=INDIVIDUAL_REUSED, gap=3, lse="TH"),
    ),
    "individual keys": replace(_SEVERAL, window_left=TOP_LEFT, window_right=5,
        varlen=replace(_LENGTHS, word=REUSED_INDIVIDUAL, gap=3),
    ),
    "places of the longest": replace(_SEVERAL, window_left=9, window_right=BOTTOM_RIGHT, varlen=replace(_LENGTHS, word=LONGEST)),
    "individual lengths, few rows": replace(_FEW, window_left=TOP_LEFT, window_right=BOTTOM_RIGHT,
        varlen=replace(_FEW_LENGTHS, word=INDIVIDUAL_REUSED),
    ),
    "individual keys, few rows": replace(_FEW, window_left=TOP_LEFT, window_right=TOP_LEFT,
        varlen=replace(_FEW_LENGTHS, word=REUSED_INDIVIDUAL, lse="rows"),
    ),
    "places of the longest, few rows": replace(_FEW, window_left=TOP_LEFT, window_right=TOP_LEFT,
        varlen=replace(_FEW_LENGTHS, word=LONGEST_COMPACT, lse="rows"),
    ),
}  # fmt: skip
BIASED = {
    "ragged": replace(BASE, heads_q=2, heads_k=2, seqlen_q=129, seqlen_k=77, bias=Bias(), layout=SPARE),
    "complete blocks": replace(BASE, seqlen_q=128, seqlen_k=128, bias=Bias()),
    "masked rows": replace(BASE, heads_q=2, heads_k=2, seqlen_q=33, seqlen_k=70, bias=Bias(kind="masked", broadcast=(1,))),
    "lowest numbers": replace(BASE, batch=2, seqlen_q=40, seqlen_k=33, bias=Bias(kind="lowest", broadcast=(0,))),
    "one row for all": replace(BASE, heads_q=2, seqlen_q=37, seqlen_k=17, bias=Bias(broadcast=(0, 1, 2)), layout=STRIDED),
    "few rows": replace(BASE, heads_q=2, heads_k=1, seqlen_q=13, seqlen_k=129, bias=Bias(kind="masked")),
    "one key": replace(BASE, seqlen_q=20, seqlen_k=1, bias=Bias(kind="lowest")),
    "scale 0": replace(BASE, seqlen_q=20, seqlen_k=7, sm_scale=0.0, bias=Bias()),
    "no keys": replace(BASE, seqlen_q=20, seqlen_k=0, bias=Bias()),
    "no keys, few rows": replace(BASE, seqlen_q=5, seqlen_k=0, bias=Bias()),
}  # fmt: skip
_EQUAL = {
    "equal, large": replace(BASE, seqlen_q=40, seqlen_k=77, draw="equal", sm_scale=0.25),
    "equal, large, few rows": replace(BASE, seqlen_q=9, seqlen_k=77, draw="equal", sm_scale=0.25),
}
_LONG = replace(BASE, seqlen_q=8195, seqlen_k=150, layout=SPARE)
_WIDE = 128
_WIDE_SKIPS = {"complete blocks", "grouped", "few rows, many keys", "strided", "left only", "bottom-right"}
"""Problems of kernels above _WIDE: without those that need several blocks of a size that only narrow tiles have."""


def problems(kernel: str, keys: Mapping[str, int]) -> Iterator[tuple[str, Problem]]:
    """Named problems of a functional."""
    width, dtype = keys["width"], dtype_of(keys["dtype"])
    table = (FULL, WINDOW, BIASED)[keys.get("mask", 0)]
    if kernel == "attn_fwd" and table is FULL:
        table = table | _EQUAL
    for number, (name, base) in enumerate(table.items()):
        if width > _WIDE and name in _WIDE_SKIPS:
            continue
        # by its name: a new problem leaves the numbers of the others as they are
        problem = replace(base, dtype=dtype, head_dim=width, seed=zlib.crc32(name.encode()))
        if keys.get("dropout"):
            # with probability 1 nothing is left; large offsets have bits in both words
            problem = replace(
                problem, dropout=Dropout(p=1.0 if name in {"diagonal", "one row for all"} else 0.25)
            )
        yield name, problem
        yield f"{name}, other", _other(problem, number)


def _other(problem: Problem, number: int) -> Problem:
    """The same problem for the image without hints, in one of the ways that there are."""
    width = problem.head_dim
    return (
        replace(problem, layout=UNALIGNED),
        replace(problem, layout=WIDER, head_dim=width - 8),
        replace(problem, layout=UNALIGNED, head_dim=width - 3, head_dim_v=max(width // 3, 1)),
        replace(problem, layout=WIDER, head_dim=width // 5 + 1, head_dim_v=width - 1),
    )[number % 4]


def long_problem(keys: Mapping[str, int]) -> Problem:
    """For settings of many queries; slow where there are none."""
    window = 9 if keys.get("mask") == 1 else None
    return replace(
        _LONG,
        dtype=dtype_of(keys["dtype"]),
        head_dim=keys["width"],
        window_left=window and 8100,
        window_right=window,
    )


_RAGGED = replace(BASE, heads_q=2, heads_k=2, seqlen_q=37, seqlen_k=70, layout=UNALIGNED)
_GROUPED = replace(BASE, batch=2, heads_q=4, heads_k=2, seqlen_q=17, seqlen_k=35, mixed=True)
_PACKED = replace(_SEVERAL, seqlen_q=20, seqlen_k=35, layout=STRIDED)
_PACKED_LENGTHS = Varlen(word=COMPACT, queries=(13, 0, 20, 1), keys=(35, 20, 0, 33))
_GENERAL: Mapping[tuple[int, int], Mapping[str, Problem]] = {
    # by mask and dropout, which are the call's here: each corner of the semantics once. Without dropout
    # profiles have images of narrow heads
    (0, 0): {
        "widest": replace(_RAGGED, head_dim=512, seqlen_q=70, seqlen_k=37),
        "compact": replace(_PACKED, head_dim=136, head_dim_v=3, varlen=_PACKED_LENGTHS),
        "low scores": replace(BASE, seqlen_q=33, seqlen_k=129, draw="low", head_dim=72, head_dim_v=200),
        "equal, large": replace(BASE, seqlen_q=9, seqlen_k=40, draw="equal", sm_scale=0.25, head_dim=144),
        "no keys": replace(BASE, seqlen_q=20, seqlen_k=0, head_dim=136),
        "no queries": replace(BASE, heads_q=2, heads_k=1, seqlen_q=0, seqlen_k=20, head_dim=264),
        "individual keys": replace(
            _PACKED, head_dim=129, head_dim_v=8, varlen=replace(_PACKED_LENGTHS, word=REUSED_INDIVIDUAL, gap=3)
        ),
    },
    (0, 1): {
        "grouped": replace(_GROUPED, head_dim=203, head_dim_v=320),
        "few columns": replace(_PACKED, head_dim=1, head_dim_v=3, varlen=_PACKED_LENGTHS),
        "rows of a cache": replace(
            _PACKED, head_dim=64, varlen=Varlen(word=CACHE, queries=(9, 0, 20, 1), keys=(35, 20, 0, 33), lse="TH")
        ),
    },
    (1, 0): {
        "both sides": replace(_RAGGED, seqlen_q=70, seqlen_k=90, window_left=13, window_right=9, head_dim=264),
        "ragged, diagonal": replace(_GROUPED, window_left=0, window_right=0, head_dim=24, head_dim_v=150),
        "rows without keys": replace(BASE, seqlen_q=70, seqlen_k=40, window_right=-30, head_dim=136),
        "bottom-right": replace(
            _PACKED, window_left=TOP_LEFT, window_right=BOTTOM_RIGHT, head_dim=192,
            varlen=replace(_PACKED_LENGTHS, word=INDIVIDUAL_REUSED, gap=3, lse="TH"),
        ),
    },
    (1, 1): {
        "all dropped": replace(_RAGGED, window_right=0, head_dim=24, head_dim_v=152),
        "places of the longest": replace(
            _PACKED, window_left=9, window_right=BOTTOM_RIGHT, head_dim=16,
            varlen=replace(_PACKED_LENGTHS, word=LONGEST, lse="rows"),
        ),
    },
    (2, 0): {
        "ragged, masked": replace(_GROUPED, bias=Bias(kind="masked", broadcast=(1,)), head_dim=64),
        "lowest numbers": replace(_RAGGED, bias=Bias(kind="lowest"), head_dim=160, head_dim_v=40),
        "scale 0": replace(BASE, seqlen_q=20, seqlen_k=7, sm_scale=0.0, bias=Bias(), head_dim=104),
    },
    (2, 1): {
        "one row for all": replace(_RAGGED, bias=Bias(broadcast=(0, 1, 2)), head_dim=40, head_dim_v=144),
    },
}  # fmt: skip


def general_problems(keys: Mapping[str, int]) -> Iterator[tuple[str, Problem]]:
    """Named problems of a functional that a general image serves, few and small: it has no special cases of
    head_dims or alignments."""
    semantics = keys.get("mask", 0), keys.get("dropout", 0)
    tables = [_GENERAL[semantics]] if "mask" in keys else [_GENERAL[mask, 0] for mask in (0, 1)]
    for name, base in (item for table in tables for item in table.items()):
        problem = replace(base, dtype=dtype_of(keys["dtype"]), seed=zlib.crc32(name.encode()))
        if keys.get("dropout"):
            problem = replace(problem, dropout=Dropout(p=1.0 if name == "all dropped" else 0.25))
        yield name, problem
