"""The attention kernels, interpreted as dispatched, against float64 within bounds from rounding analysis."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from aotforge.verify.interpreter.number_formats import DType
from kernels.flash.bounds import bounds
from kernels.flash.rules import FAMILY
from tests.integration.kernels.attention_call import (
    FOLDER,
    GFX908,
    Case,
    Guarded,
    Layout,
    Outcome,
    run_case,
    run_operator,
    values_of,
)

FORWARD = ("out", "lse")
BACKWARD = ("delta", "dq", "dk", "dv")
LAYOUTS = (
    Layout(),  # (batch, heads, rows, head_dim), dense
    Layout(spare_rows=3),  # a view of longer sequences: elements after each head's last row are not numbers
    Layout(order=(0, 2, 1)),  # a view of (batch, rows, heads, head_dim), as PyTorch's modules make it
    Layout(order=(2, 1, 0), row_padding=8),  # rows outermost
    Layout(order=(1, 0, 2), row_padding=1, offset=37),  # no alignment at all: the fallback's case
)


def misses(case: Case, outcome: Outcome, names: tuple[str, ...] = FORWARD + BACKWARD) -> dict[str, float]:
    """The worst element of each result, in multiples of its bound; at most 1 is right."""
    i = case.inputs()
    expected = bounds(i["Q"], i["K"], i["V"], i["DO"], case.options(i), dtype=case.dtype)
    return {name: float(expected[name].misses(getattr(outcome, name)).max(initial=0.0)) for name in names}


def assert_right(case: Case, outcome: Outcome) -> None:
    worst = misses(case, outcome)
    assert {name: ratio for name, ratio in worst.items() if ratio > 1} == {}
    assert [name for name in ("Q", "K", "V", "DO") if not outcome.tensors[name].unchanged()] == []
    assert [name for name, tensor in outcome.tensors.items() if not tensor.intact()] == []


@st.composite
def cases(draw: st.DrawFn) -> Case:
    heads_k = draw(st.integers(1, 2))
    group = draw(st.integers(1, 3))
    seqlen_q, seqlen_k = draw(st.integers(0, 70)), draw(st.integers(0, 70))
    window = st.one_of(
        st.none(),
        st.just(0),  # top-left
        st.just(seqlen_k - seqlen_q),  # bottom-right
        st.integers(-seqlen_q - 2, seqlen_k + 2),
        st.sampled_from([-(2**31), 2**31 - 1]),
    )
    return Case(
        dtype=draw(st.sampled_from(["fp16", "bf16"])),
        batch=draw(st.integers(1, 2)),
        heads_q=heads_k * group,
        heads_k=heads_k,
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        head_dim=draw(st.sampled_from([32, 64, 128])),
        window_right=draw(window),
        sm_scale=draw(st.sampled_from([0.125, 0.3, 8.0, -0.2, 0.0])),
        layout=draw(st.sampled_from(LAYOUTS)),
        seed=draw(st.integers(0, 2**16)),
    )


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
@example(case=Case(seqlen_q=0, seqlen_k=17, window_right=0))
@example(case=Case(seqlen_q=17, seqlen_k=0))
@example(case=Case(seqlen_q=0, seqlen_k=0, window_right=0))
def test_tuned_configurations_agree_with_float64(case: Case) -> None:
    assert_right(case, run_case(case))


@pytest.mark.slow
@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_many_cases_of_tuned_configurations(case: Case) -> None:
    assert_right(case, run_case(case))


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("window_right", [None, 0, 33])
def test_sequences_of_several_tuned_blocks(dtype: DType, window_right: int | None) -> None:
    case = Case(
        dtype=dtype, seqlen_q=150, seqlen_k=183, head_dim=64, window_right=window_right, sm_scale=0.125
    )
    assert_right(case, run_case(case))


@pytest.mark.parametrize("seqlen_q", [1, 2, 15, 16, 17])
def test_short_queries_over_many_keys(seqlen_q: int) -> None:
    for window_right in (None, 200 - seqlen_q):
        case = Case(seqlen_q=seqlen_q, seqlen_k=200, heads_q=4, heads_k=2, window_right=window_right)
        assert_right(case, run_case(case))


def test_rows_without_keys_have_zero_output_infinite_lse_and_no_gradient() -> None:
    # bottom-right alignment with more queries than keys: the first 30 rows see nothing
    case = Case(seqlen_q=50, seqlen_k=20, window_right=-30, dtype="bf16")
    got = run_case(case)
    assert np.all(got.out[:, :, :30] == 0)
    assert np.all(got.lse[:, :, :30] == np.inf)
    assert np.all(got.dq[:, :, :30] == 0)
    assert np.all(np.isfinite(got.lse[:, :, 30:]))
    assert_right(case, got)


def test_keys_that_no_query_sees_get_zero_gradients() -> None:
    # top-left alignment with more keys than queries: keys from 20 on serve no query
    case = Case(seqlen_q=20, seqlen_k=90, window_right=0)
    got = run_case(case)
    assert np.all(got.dk[:, :, 20:] == 0)
    assert np.all(got.dv[:, :, 20:] == 0)
    assert_right(case, got)


def test_strides_beyond_32_bits_are_addressed() -> None:
    # one head and batch: their strides multiply zero, so any value is legal and none may be narrowed
    case = Case(seqlen_q=20, seqlen_k=20)
    got = run_case(case, values={"stride_qz": 2**40, "stride_kh": 2**45, "stride_oz": 2**50})
    assert_right(case, got)


@pytest.mark.parametrize("name", FORWARD + BACKWARD)
def test_rows_that_are_one_percent_off_are_caught(name: str) -> None:
    case = Case(seqlen_q=64, seqlen_k=64, head_dim=64)
    got = run_case(case)
    getattr(got, name)[0, 0, 16:32] *= 1.01
    assert misses(case, got)[name] > 1


def test_bounds_are_no_wider_than_the_arithmetic_explains() -> None:
    # a tolerance that hides nothing: real errors come within a factor of about five of it
    case = Case(seqlen_q=64, seqlen_k=64, head_dim=64)
    worst = misses(case, run_case(case), ("out", "dv", "dk", "dq"))
    assert min(worst.values()) > 0.05


@pytest.mark.parametrize("window_right", [None, 0])
def test_inference_passes_no_lse(window_right: int | None) -> None:
    """A null L with zero strides, as PyTorch passes it without gradients: the same Out, and no store through
    null."""
    case = Case(heads_q=4, heads_k=2, seqlen_q=33, seqlen_k=47, window_right=window_right)
    inputs = case.inputs()
    tensors = {name: Guarded(case.shape(name), case.dtype, case.layout, inputs[name]) for name in "QKV"}
    tensors["Out"] = Guarded(case.shape("Out"), case.dtype, case.layout)
    call = values_of(case, tensors) | {"L": 0, "stride_lz": 0}
    buffers = {name: tensor.storage for name, tensor in tensors.items()}
    run_operator(FAMILY, FOLDER, "attn_fwd", target=GFX908, values=call, buffers=buffers)
    assert np.array_equal(tensors["Out"].values(), run_case(case).out)
    assert all(tensor.intact() for tensor in tensors.values())
