"""The float64 reference against an independent implementation: PyTorch's attention and its automatic
differentiation.
"""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.flash.reference import attention, attention_backward

pytestmark = pytest.mark.torch


@st.composite
def problems(draw: st.DrawFn) -> tuple[tuple[int, ...], int | None, int]:
    heads_k, group = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    n_q, n_k = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    # every row has a key: what PyTorch does with rows without any is its own affair
    window = draw(st.one_of(st.none(), st.integers(0, n_k)))
    return (draw(st.integers(1, 2)), heads_k * group, heads_k, n_q, n_k, 8), window, draw(st.integers(0, 999))


@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_forward_and_backward_agree_with_pytorch(problem: tuple[tuple[int, ...], int | None, int]) -> None:
    torch = pytest.importorskip("torch")
    (batch, heads_q, heads_k, n_q, n_k, d), window, seed = problem
    rng = np.random.default_rng(seed)
    q, do = (rng.standard_normal((batch, heads_q, n_q, d)) for _ in range(2))
    k, v = (rng.standard_normal((batch, heads_k, n_k, d)) for _ in range(2))

    tq, tk, tv = (torch.tensor(x, requires_grad=True) for x in (q, k, v))
    mask = None
    if window is not None:
        mask = torch.arange(n_k)[None, :] <= torch.arange(n_q)[:, None] + window
    expected = torch.nn.functional.scaled_dot_product_attention(
        tq, tk, tv, attn_mask=mask, scale=0.3, enable_gqa=True
    )
    expected.backward(torch.tensor(do))
    scores = torch.einsum("bhqd,bhkd->bhqk", tq, tk.repeat_interleave(heads_q // heads_k, dim=1)) * 0.3
    if mask is not None:
        scores = scores.masked_fill(~mask, -np.inf)

    out, lse = attention(q, k, v, sm_scale=0.3, window_right=window)
    grads = attention_backward(q, k, v, do, sm_scale=0.3, window_right=window)
    for ours, theirs in (
        (out, expected),
        (lse, torch.logsumexp(scores, dim=-1)),
        (grads.delta, (expected * torch.tensor(do)).sum(-1)),
        (grads.dq, tq.grad),
        (grads.dk, tk.grad),
        (grads.dv, tv.grad),
    ):
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("bottom_right", [False, True])
def test_windows_mean_what_pytorch_calls_causal(bottom_right: bool) -> None:
    torch = pytest.importorskip("torch")
    bias = importlib.import_module("torch.nn.attention.bias")
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, 2, n, 8)) for n in (5, 9, 9))
    mask = (bias.causal_lower_right if bottom_right else bias.causal_upper_left)(5, 9)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(torch.tensor(x) for x in (q, k, v)), attn_mask=mask._materialize("cpu"), scale=1.0
    )
    out, _ = attention(q, k, v, sm_scale=1.0, window_right=4 if bottom_right else 0)
    np.testing.assert_allclose(out, expected.numpy(), rtol=1e-10, atol=1e-12)


def test_rows_without_keys() -> None:
    q, k, v, do = (np.ones((1, 1, n, 4)) for n in (3, 2, 2, 3))
    out, lse = attention(q, k, v, sm_scale=1.0, window_right=-2)
    assert out[0, 0].tolist() == [[0] * 4, [0] * 4, [1] * 4]
    assert lse[0, 0, :2].tolist() == [np.inf, np.inf]
    grads = attention_backward(q, k, v, do, sm_scale=1.0, window_right=-2)
    assert not grads.dq[0, 0, :2].any()
    assert grads.dv[0, 0].tolist() == [[1] * 4, [0] * 4]
