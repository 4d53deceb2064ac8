"""Random attention calls with every feature, each kernel interpreted with small blocks and compared as the
verifier compares images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from aotforge.verify.tensors import Layout
from kernels.flash.call import BOTTOM_RIGHT, TOP_LEFT, Bias, Case, Dropout
from kernels.flash.sequences import LseLayout, Varlen
from tests.integration.kernels.features import KERNELS, violations

ATTENTION = [name for name in KERNELS if name != "attn_dropout_mask"]
LAYOUTS = (
    Layout(),
    Layout(spare_rows=3),
    Layout(order=(0, 2, 1), row_padding=5),
    Layout(order=(1, 0, 2), row_padding=1, offset=37),
)
LSE_LAYOUTS: tuple[LseLayout, ...] = ("HT", "TH", "rows")
WORDS = (0x0B0B, 0x0202, 0x1313, 0x000B, 0x150B, 0x040B)


def windows(draw: st.DrawFn, n_q: int, n_k: int, *, sentinels: bool) -> dict[str, Any]:
    """Both sides; None is without a bound."""
    left, right = st.integers(-n_k - 2, n_q + 2), st.integers(-n_q - 2, n_k + 2)
    far = st.sampled_from([2**31 - 1, -(2**30)])
    aligned = st.sampled_from([TOP_LEFT, BOTTOM_RIGHT]) if sentinels else st.just(n_k - n_q)
    sides = {"window_left": st.one_of(st.none(), left, far), "window_right": st.one_of(right, aligned, far)}
    return {side: draw(values) for side, values in sides.items()}


@st.composite
def calls(draw: st.DrawFn) -> Case:
    heads_k, batch = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    case = Case(
        dtype=draw(st.sampled_from(["fp16", "bf16", "fp32"])),
        batch=batch,
        heads_q=heads_k * draw(st.integers(1, 3)),
        heads_k=heads_k,
        seqlen_q=draw(st.integers(0, 50)),
        seqlen_k=draw(st.integers(0, 50)),
        head_dim=draw(st.integers(1, 130)),
        head_dim_v=draw(st.none() | st.integers(1, 130)),
        sm_scale=draw(st.sampled_from([0.125, 0.3, 2.0, -0.2, 0.0])),
        layout=draw(st.sampled_from(LAYOUTS)),
        mixed=draw(st.booleans()),
        dropout=draw(st.none() | st.builds(Dropout, p=st.sampled_from([0.1, 0.5, 1.0]))),
        seed=draw(st.integers(0, 2**16)),
    )
    mask = draw(st.sampled_from(["none", "window", "bias"]))
    if mask == "bias":
        axes = st.lists(st.integers(0, 2), unique=True).map(tuple)
        kinds = st.sampled_from(["normal", "masked", "lowest"])
        return replace(case, bias=draw(st.builds(Bias, kind=kinds, broadcast=axes)))
    packed = draw(st.booleans())
    if packed:
        lengths = {
            side: tuple(draw(st.lists(st.integers(0, longest), min_size=batch, max_size=batch)))
            for side, longest in (("queries", case.seqlen_q), ("keys", case.seqlen_k))
        }
        layout = draw(st.sampled_from(LSE_LAYOUTS))
        word, gap = draw(st.sampled_from(WORDS)), draw(st.integers(0, 4))
        case = replace(case, varlen=Varlen(word=word, gap=gap, lse=layout, **lengths))
    if mask == "window":
        case = replace(case, **windows(draw, case.seqlen_q, case.seqlen_k, sentinels=packed))
    return case


def check(case: Case) -> None:
    for kernel in ATTENTION:
        assert list(violations(kernel, case, least=256)) == [], kernel


@settings(max_examples=3, derandomize=True, suppress_health_check=list(HealthCheck))
@given(case=calls())
def test_random_calls_agree_with_float64(case: Case) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@settings(max_examples=400, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(case=calls())
def test_many_random_calls_agree_with_float64(case: Case) -> None:
    """Not shrunk, as that takes longer than the test: the example is short enough."""
    check(case)
