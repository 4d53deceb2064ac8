"""The attention family: which calls of attn_fwd and attn_bwd are served, by which kernels.

Covered: fp16, bf16 and fp32, head_dim up to 512 (another one for V), full attention, windows, an additive
bias, dropout, variable
length, any lengths and strides, grouped heads. A call takes the next larger compiled width, whose other
columns are masked.
Beyond the widths and features that a profile keeps, the general images serve every call
(general_settings.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from aotforge.rules import (
    Argument,
    Choice,
    Family,
    Functional,
    Kernel,
    Scalar,
    Setting,
    Target,
    Term,
    dtypes,
)

from .backward_settings import WIDTHS, backward_settings
from .forward_settings import dropout_mask_settings, forward_settings
from .gates import GATES
from .general_settings import general_settings
from .operators import ATTN_BWD, ATTN_DROPOUT_MASK, ATTN_FWD

_DTYPE = Choice(name="dtype", key="dtype", options=dtypes("fp16", "bf16", "fp32"))
_WIDTH = Choice(name="width", key="width", options={width: width for width in WIDTHS}, ladder=True)
_CHOICES = (
    _DTYPE,
    Choice(name="dropout", key="dropout", options={False: 0, True: 1}),
    Choice(name="mask", key="mask", options={"full": 0, "window": 1, "bias": 2}),
    _WIDTH,
)


def _tensors(names: str) -> tuple[Argument, ...]:
    """Tensors of the call's dtype; 16 bytes of alignment let a lane load them at once."""
    return tuple(Argument(name=n, type="*{dtype}", value=n, divisible_by=16) for n in names.split())


def _vectors(names: str) -> tuple[Argument, ...]:
    """Float32 per query; read element by element, so no alignment is required."""
    return tuple(Argument(name=n, type="*fp32", value=n) for n in names.split())


def _strides(names: str, *, divisible_by: int | None = 8) -> tuple[Argument, ...]:
    """Strides in elements; 8 halves are the 16 bytes that a row's start must be aligned to."""
    return tuple(
        Argument(name=f"stride_{n}", type="i64", value=f"stride_{n}", divisible_by=divisible_by)
        for n in names.split()
    )


def _scalars(names: str) -> tuple[Argument, ...]:
    types = {"sm_scale": "fp32", "dropout_p": "fp32", "philox_offset2": "u64"}
    return tuple(Argument(name=n, type=types.get(n, "i32"), value=n) for n in names.split())


def _pointers(names: str, type_: str) -> tuple[Argument, ...]:
    return tuple(Argument(name=n, type=type_, value=n) for n in names.split())


def _backward_arguments(strides: str, unaligned: str = "") -> tuple[Argument, ...]:
    """After the tensors of the call's dtype; `strides` are those of the results."""
    return (
        *_vectors("L D"),
        *_pointers("philox_seed philox_offset1", "*u64"),
        *_pointers("seqinfo_q0 seqinfo_q1 seqinfo_k0 seqinfo_k1", "*i32"),
        *_strides("qz qh qm kz kh kn vz vh vn bz bh bm"),
        *_strides("bn", divisible_by=None),
        *_strides(f"doz doh dom {strides}"),
        *_strides(f"{unaligned} lz lh lm dz dh dm", divisible_by=None),
        *_scalars(
            "philox_offset2 num_head_q group seqlen_q seqlen_k head_dim head_dim_v window_left window_right"
        ),
        *_scalars("varlen_bits lse_packed sm_scale dropout_p"),
    )


def _backward_constants(functional: Functional) -> Mapping[str, Scalar]:
    mask = functional["mask"]
    return {
        "WIDTH": functional["width"],
        "WINDOW": mask == "window",
        "BIAS": mask == "bias",
        "DROPOUT": functional["dropout"],
    }


def _forward(target: Target, functional: Functional) -> tuple[Setting, ...]:
    return (
        *forward_settings(target, functional),
        *general_settings("attn_fwd", target, functional),
    )


def _backward(kernel: str, target: Target, functional: Functional) -> tuple[Setting, ...]:
    return (
        *backward_settings(kernel, target, functional),
        *general_settings(kernel, target, functional),
    )


def _grid(length: str, block: str, heads: str) -> tuple[tuple[Term, ...], ...]:
    return ((Term(value=length, divisor=block),), (Term(value=heads),), (Term(value="batch"),))


def _parts(length: str, block: str, heads: str) -> tuple[tuple[Term, ...], ...]:
    """A wide head_dim takes several programs per block."""
    blocks, *others = _grid(length, block, heads)
    return ((*blocks, Term(value="width", divisor="PART")), *others)


_QUERY_GRID = _grid("seqlen_q", "BLOCK_M", "num_head_q")

FAMILY = Family(
    name="flash",
    gates=GATES,
    operators=(ATTN_FWD, ATTN_BWD, ATTN_DROPOUT_MASK),
    kernels=(
        Kernel(
            name="attn_fwd",
            source="forward.py",
            function="attn_fwd",
            operator="attn_fwd",
            choices=_CHOICES,
            arguments=(
                *_tensors("Q K V B"),
                *_vectors("L"),
                *_tensors("Out"),
                *_strides("qz qh qm kz kh kn vz vh vn bz bh bm"),
                *_strides("bn lz lh lm", divisible_by=None),
                *_strides("oz oh om"),
                *_scalars("num_head_q group seqlen_q seqlen_k head_dim head_dim_v"),
                *_pointers("seqinfo_q0 seqinfo_q1 seqinfo_k0 seqinfo_k1", "*i32"),
                *_scalars("varlen_bits lse_packed sm_scale window_left window_right dropout_p"),
                *_pointers("philox_seed philox_offset1", "*u64"),
                *_scalars("philox_offset2"),
                *_pointers("philox_seed_output philox_offset_output", "*u64"),
            ),
            constants=lambda functional: {
                "WIDTH": functional["width"],
                "MASK": functional["mask"],
                "DROPOUT": functional["dropout"],
            },
            settings=_forward,
            grid=(
                (Term(value="seqlen_q", divisor="BLOCK_M"), Term(value="head_dim_v", divisor="PART")),
                *_QUERY_GRID[1:],
            ),
        ),
        Kernel(
            name="attn_dropout_mask",
            source="dropout_mask.py",
            function="attn_dropout_mask",
            operator="attn_dropout_mask",
            choices=(_DTYPE,),
            arguments=(
                *_pointers("R", "*{dtype}"),
                *_strides("rz rh rm rn", divisible_by=None),
                *_scalars("num_head_q seqlen_q seqlen_k dropout_p"),
                *_pointers("philox_seed philox_offset1", "*u64"),
                *_scalars("philox_offset2"),
            ),
            settings=dropout_mask_settings,
            grid=(
                (Term(value="seqlen_q", divisor="BLOCK_M"), Term(value="seqlen_k", divisor="BLOCK_N")),
                *_QUERY_GRID[1:],
            ),
        ),
        Kernel(
            name="bwd_preprocess",
            source="backward.py",
            function="bwd_preprocess",
            operator="attn_bwd",
            step=0,
            choices=(_DTYPE, _WIDTH),
            arguments=(
                *_tensors("Out DO"),
                *_vectors("D"),
                *_pointers("seqinfo_q0 seqinfo_q1", "*i32"),
                *_strides("oz oh om doz doh dom"),
                *_strides("dz dh dm", divisible_by=None),
                *_scalars("seqlen_q head_dim_v varlen_bits lse_packed"),
            ),
            constants=lambda functional: {"WIDTH": functional["width"]},
            settings=lambda target, functional: _backward("bwd_preprocess", target, functional),
            grid=_QUERY_GRID,
        ),
        Kernel(
            name="bwd_dk_dv",
            source="backward.py",
            function="bwd_dk_dv",
            operator="attn_bwd",
            step=1,
            choices=_CHOICES,
            arguments=(
                *_tensors("Q K V B DO DK DV"),
                *_backward_arguments("dkz dkh dkn dvz dvh dvn"),
            ),
            constants=_backward_constants,
            settings=lambda target, functional: _backward("bwd_dk_dv", target, functional),
            grid=_parts("seqlen_k", "BLOCK_N", "num_head_k"),
        ),
        Kernel(
            name="bwd_dq",
            source="backward.py",
            function="bwd_dq",
            operator="attn_bwd",
            step=2,
            choices=_CHOICES,
            arguments=(
                *_tensors("Q K V B DO DQ DB"),
                *_backward_arguments("dqz dqh dqm dbz dbh dbm", "dbn"),
            ),
            constants=_backward_constants,
            settings=lambda target, functional: _backward("bwd_dq", target, functional),
            grid=_parts("seqlen_q", "BLOCK_M", "num_head_q"),
        ),
    ),
)
