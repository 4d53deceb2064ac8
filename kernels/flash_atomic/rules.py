"""The backward pass of attention in one kernel, five products per pair of blocks where `flash` computes
seven.

Programs own blocks of keys; what they add to dQ is added by atomics, in an order that differs from run to
run. So results are not
deterministic, and this is an operator of its own. For archs with rows in `manifests/tuning/`.
"""

from __future__ import annotations

from dataclasses import dataclass

from aotforge.base.tuning import tuning
from aotforge.rules import (
    Argument,
    Between,
    Choice,
    Condition,
    Equals,
    Family,
    Functional,
    Kernel,
    MultipleOf,
    Setting,
    Target,
    Term,
    dtypes,
)
from aotforge.timed_rules import TimedSetting

from .operators import ATTN_BWD_ATOMIC

ROWS = 64
"""Queries of a block: the rows of a matrix instruction."""
KEYS = 128
_NEAR = 2**23
"""Rows at most this far apart have 32-bit offsets in a block."""
_IN_BLOCKS = "qm kn vn om dom dqm dkn dvn"
_REGISTERS = 168
"""What three groups of four warps have each before they divide the registers among themselves."""


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A configuration for one width and for `archs`. `ahead`: scores of the next block are computed while dK
    is.

    `num_warps` of the sums, `vector_warps` of the kernels before and after them.
    """

    width: int
    stages: int
    ahead: bool
    archs: tuple[str, ...]
    num_warps: int = 4
    vector_warps: int = 8


def _fits(target: Target, functional: Functional) -> Tuned | None:
    rows = tuning().rows("flash_atomic.bwd_sums", target.arch, target.warp_size, Tuned)
    return next((row for row in rows if row.width == functional["width"] and target.arch in row.archs), None)


def _when(functional: Functional) -> tuple[Condition, ...]:
    width = int(functional["width"])
    near = (Between(value=f"stride_{name}", low=-_NEAR, high=_NEAR) for name in _IN_BLOCKS.split())
    return (
        *(Equals(value=name, to=1) for name in ("stride_lm", "stride_dm")),
        Equals(value="stride_dqam", to=width),
        MultipleOf(value="seqlen_q", of=ROWS),
        MultipleOf(value="seqlen_k", of=KEYS),
        *near,
    )


def _sums(target: Target, functional: Functional) -> tuple[Setting, ...]:
    found = _fits(target, functional)
    if found is None:
        return ()
    return (
        TimedSetting(
            constants={"STAGES": found.stages, "AHEAD": found.ahead, "ROWS": ROWS, "KEYS": KEYS},
            when=_when(functional),
            unaligned=False,
            num_warps=found.num_warps,
            options={"maxnreg": _REGISTERS},
            spills=True,
        ),
    )


def _plain(target: Target, functional: Functional) -> tuple[Setting, ...]:
    found = _fits(target, functional)
    if found is None:
        return ()
    return (
        Setting(
            constants={"ROWS": ROWS},
            when=_when(functional),
            unaligned=False,
            num_warps=found.vector_warps,
        ),
    )


_DTYPE = Choice(name="dtype", key="dtype", options=dtypes("fp16", "bf16"))
_WIDTH = Choice(name="width", key="head_dim", options={64: 64, 128: 128})
_MASK = Choice(name="mask", key="mask", options={"full": 0, "window": 1})


def _tensors(names: str, type_: str = "*{dtype}") -> tuple[Argument, ...]:
    return tuple(Argument(name=name, type=type_, value=name, divisible_by=16) for name in names.split())


def _strides(names: str, *, divisible_by: int | None = 8) -> tuple[Argument, ...]:
    return tuple(
        Argument(name=f"stride_{name}", type="i64", value=f"stride_{name}", divisible_by=divisible_by)
        for name in names.split()
    )


def _numbers(names: str) -> tuple[Argument, ...]:
    return tuple(
        Argument(name=name, type="fp32" if name == "sm_scale" else "i32", value=name)
        for name in names.split()
    )


def _grid(length: str, block: str, heads: str) -> tuple[tuple[Term, ...], ...]:
    return ((Term(value=length, divisor=block),), (Term(value=heads),), (Term(value="batch"),))


FAMILY = Family(
    name="flash_atomic",
    operators=(ATTN_BWD_ATOMIC,),
    kernels=(
        Kernel(
            name="bwd_start",
            source="vectors.py",
            function="bwd_start",
            operator="attn_bwd_atomic",
            choices=(_DTYPE, _WIDTH),
            arguments=(
                *_tensors("Out DO"),
                *_tensors("D", "*fp32"),
                *_strides("oz oh om doz doh dom"),
                *_strides("dz dh", divisible_by=None),
            ),
            constants=lambda functional: {"WIDTH": functional["width"]},
            settings=_plain,
            grid=_grid("seqlen_q", "ROWS", "num_head_q"),
        ),
        Kernel(
            name="bwd_sums",
            source="backward_warpgroups.py",
            function="bwd_sums",
            operator="attn_bwd_atomic",
            step=1,
            choices=(_DTYPE, _MASK, _WIDTH),
            arguments=(
                *_tensors("Q K V DO DK DV"),
                *_tensors("L D DQ_ACC", "*fp32"),
                *_strides("qz qh qm kz kh kn vz vh vn doz doh dom dkz dkh dkn dvz dvh dvn"),
                *_strides("lz lh dz dh", divisible_by=None),
                *_strides("dqaz dqah"),
                *_numbers("group seqlen_q seqlen_k window_left window_right sm_scale"),
            ),
            constants=lambda functional: {
                "WIDTH": functional["width"],
                "WINDOW": functional["mask"] == "window",
            },
            settings=_sums,
            grid=_grid("seqlen_k", "KEYS", "num_head_k"),
        ),
        Kernel(
            name="bwd_end",
            source="backward_warpgroups.py",
            function="bwd_end",
            operator="attn_bwd_atomic",
            step=2,
            choices=(_DTYPE, _WIDTH),
            arguments=(
                *_tensors("DQ_ACC", "*fp32"),
                *_tensors("DQ"),
                *_strides("dqaz dqah dqz dqh dqm"),
                *_numbers("sm_scale"),
            ),
            constants=lambda functional: {"WIDTH": functional["width"]},
            settings=_plain,
            grid=_grid("seqlen_q", "ROWS", "num_head_q"),
        ),
    ),
)
