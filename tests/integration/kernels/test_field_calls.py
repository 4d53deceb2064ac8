# ruff: noqa: E501 - one call per line
"""Attention calls that failed with other libraries: odd head_dims, large magnitudes, lowest numbers,
non-contiguous V, fp32 causal.

Each kernel is interpreted with small blocks.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import pytest

from aotforge.verify.interpreter.number_formats import DType, decode, encode
from aotforge.verify.tensors import Float
from kernels.flash.call import BOTTOM_RIGHT, Bias, Case
from kernels.flash.sequences import Varlen
from tests.integration.kernels.features import KERNELS, violations

ATTENTION = [name for name in KERNELS if name != "attn_dropout_mask"]


@dataclass(frozen=True, kw_only=True)
class Large(Case):
    """Values of Q, K, V around `magnitude`; gradients are not scaled, so that no result exceeds its type."""

    magnitude: float = 1.0

    def inputs(self) -> dict[str, Float]:
        drawn = super().inputs()
        scaled = {name: drawn[name] * self.magnitude for name in "QKV"}
        return drawn | {name: decode(encode(x, self.dtype), self.dtype) for name, x in scaled.items()}


BASE = Case(heads_q=2, heads_k=1, seqlen_q=20, seqlen_k=37)
LENGTHS = Varlen(word=0x0B0B, queries=(5, 1, 140), keys=(180, 129, 140))
PACKED = Case(
    batch=3, heads_q=1, heads_k=1, seqlen_q=140, seqlen_k=180, head_dim=32, sm_scale=0.125, varlen=LENGTHS
)
HALF: tuple[DType, ...] = ("fp16", "bf16")
DIMS = (40, 72, 80, 96, 160, 384, 512)
CALLS: dict[str, Case] = {
    f"head_dim {dim}, {dtype}": replace(BASE, dtype=dtype, head_dim=dim, sm_scale=dim**-0.5, mixed=dim == 80)
    for dim, dtype in zip(DIMS, itertools.cycle(HALF), strict=False)
}
CALLS |= {
    "fp32, head_dim 80, causal": replace(BASE, dtype="fp32", head_dim=80, seqlen_q=40, seqlen_k=40, window_right=0, sm_scale=80**-0.5),
    "fp32, head_dim 80, causal, bottom-right": replace(BASE, dtype="fp32", head_dim=80, seqlen_q=20, seqlen_k=45, window_right=25, sm_scale=80**-0.5),
    "V is a view of (batch, rows, heads, head_dim)": replace(BASE, head_dim=128, heads_k=2, mixed=True, sm_scale=128**-0.5),
    "bf16 of 1e5": Large(**{**vars(BASE), "dtype": "bf16", "head_dim": 64, "sm_scale": 2e-11, "magnitude": 1e5}),
    "bf16 of 1e5, head_dim 72": Large(**{**vars(BASE), "dtype": "bf16", "head_dim": 72, "sm_scale": 2e-11, "magnitude": 1e5}),
    "fp16 of 1e4": Large(**{**vars(BASE), "dtype": "fp16", "head_dim": 64, "sm_scale": 2e-9, "magnitude": 1e4}),
    # ROCm/flash-attention#158; AOTriton's windows count from the query's own position
    "packed, window of 129 keys": replace(PACKED, window_left=128, window_right=0),
    "packed, window of 129 keys, bottom-right": replace(PACKED, window_left=128, window_right=BOTTOM_RIGHT),
    "rows of fp16's lowest number": replace(BASE, head_dim=64, sm_scale=0.125, bias=Bias(kind="lowest")),
    "rows of bf16's lowest number": replace(BASE, dtype="bf16", head_dim=96, sm_scale=0.1, bias=Bias(kind="lowest", broadcast=(0, 1))),
    "rows of fp32's lowest number": replace(BASE, dtype="fp32", head_dim=64, sm_scale=0.125, bias=Bias(kind="lowest", broadcast=(1,))),
}  # fmt: skip
DIMS_OF_PIECES = 160
"""From here on blocks are interpreted in pieces, which takes seconds."""
QUICK = [name for name, call in CALLS.items() if call.head_dim < DIMS_OF_PIECES]


@pytest.mark.parametrize("name", QUICK)
def test_calls_of_the_field_agree_with_float64(name: str) -> None:
    for kernel in ATTENTION:
        assert list(violations(kernel, CALLS[name])) == [], kernel


@pytest.mark.parametrize("name", sorted(CALLS.keys() - set(QUICK)))
def test_wide_calls_of_the_field_agree_with_float64(name: str) -> None:
    for kernel in ("attn_fwd", "bwd_preprocess"):
        assert list(violations(kernel, CALLS[name])) == [], kernel
