"""The float64 reference against an independent implementation: PyTorch's attention and its automatic
differentiation.
"""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.flash.call import Bias, Case, Dropout
from kernels.flash.reference import Array, Options, attention, attention_backward

pytestmark = pytest.mark.torch


@st.composite
def problems(draw: st.DrawFn) -> Case:
    heads_k, group = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    n_q, n_k = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    # every row has a key: what PyTorch does with rows without any is its own affair
    return Case(
        dtype="fp32",
        batch=draw(st.integers(1, 2)),
        heads_q=heads_k * group,
        heads_k=heads_k,
        seqlen_q=n_q,
        seqlen_k=n_k,
        head_dim=draw(st.integers(1, 9)),
        head_dim_v=draw(st.integers(1, 9)),
        window_left=draw(st.one_of(st.none(), st.integers(max(n_q - n_k, 0), n_q))),
        window_right=draw(st.one_of(st.none(), st.integers(0, n_k))),
        bias=draw(st.sampled_from([None, Bias(), Bias(broadcast=(0, 1)), Bias(broadcast=(2,))])),
        dropout=draw(st.sampled_from([None, Dropout(p=0.3)])),
        sm_scale=0.3,
        seed=draw(st.integers(0, 999)),
    )


def by_pytorch(case: Case) -> list[Array]:
    """out, lse, delta, dq, dk, dv, db by automatic differentiation; dropout under the same mask."""
    torch = pytest.importorskip("torch")
    inputs = case.inputs()
    options = case.options(inputs)
    q, k, v = (torch.tensor(inputs[name], requires_grad=True) for name in "QKV")
    do = torch.tensor(inputs["DO"])
    group = case.heads_q // case.heads_k
    bias = (
        torch.zeros(case.shape("B"), dtype=torch.float64)
        if options.bias is None
        else torch.tensor(options.bias)
    )
    bias.requires_grad_()
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k.repeat_interleave(group, dim=1)) * options.sm_scale + bias
    row, column = torch.arange(case.seqlen_q)[:, None], torch.arange(case.seqlen_k)[None, :]
    if case.window_left is not None:
        scores = scores.masked_fill(column < row - case.window_left, -np.inf)
    if case.window_right is not None:
        scores = scores.masked_fill(column > row + case.window_right, -np.inf)
    p = torch.softmax(scores, dim=-1)
    if options.keep is not None:
        p = p * torch.tensor(options.keep) / (1 - options.dropout_p)
    out = p @ v.repeat_interleave(group, dim=1)
    out.backward(do)
    found = (out, torch.logsumexp(scores, dim=-1), (out * do).sum(-1), q.grad, k.grad, v.grad, bias.grad)
    return [tensor.detach().numpy() for tensor in found]


@settings(max_examples=80, deadline=None)
@given(case=problems())
def test_forward_and_backward_agree_with_pytorch(case: Case) -> None:
    inputs = case.inputs()
    q, k, v, do = (inputs[name] for name in ("Q", "K", "V", "DO"))
    options = case.options(inputs)
    out, lse = attention(q, k, v, options)
    grads = attention_backward(q, k, v, do, options)
    ours = (out, lse, grads.delta, grads.dq, grads.dk, grads.dv, grads.db)
    for our, theirs in zip(ours, by_pytorch(case), strict=True):
        np.testing.assert_allclose(our, theirs, rtol=1e-10, atol=1e-12)


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
    out, _ = attention(q, k, v, Options(sm_scale=1.0, window_right=4 if bottom_right else 0))
    np.testing.assert_allclose(out, expected.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("window", [(None, -2), (-1, None), (-2, 4), (4, -2), (0, 0)])
def test_windows_of_both_signs(window: tuple[int | None, int | None]) -> None:
    left, right = window
    seen = Options(sm_scale=1.0, window_left=left, window_right=right).visible(6, 7)
    for i, j in np.ndindex(seen.shape):
        assert seen[i, j] == ((left is None or i - left <= j) and (right is None or j <= i + right))


def test_a_bias_that_removes_a_row_leaves_nothing_and_the_lowest_number_leaves_the_average() -> None:
    q, k, v = (np.random.default_rng(1).standard_normal((1, 1, n, 4)) for n in (2, 3, 3))
    bias = np.array([[[[-np.inf] * 3, [-3.3895e38] * 3]]])
    out, lse = attention(q, k, v, Options(sm_scale=1.0, bias=bias))
    assert out[0, 0, 0].tolist() == [0] * 4 and lse[0, 0, 0] == np.inf
    np.testing.assert_allclose(out[0, 0, 1], v[0, 0].mean(axis=0))
    grads = attention_backward(q, k, v, np.ones((1, 1, 2, 4)), Options(sm_scale=1.0, bias=bias))
    assert not grads.dq[0, 0, 0].any() and not grads.db[0, 0, 0].any()


def test_rows_without_keys() -> None:
    q, k, v, do = (np.ones((1, 1, n, 4)) for n in (3, 2, 2, 3))
    out, lse = attention(q, k, v, Options(sm_scale=1.0, window_right=-2))
    assert out[0, 0].tolist() == [[0] * 4, [0] * 4, [1] * 4]
    assert lse[0, 0, :2].tolist() == [np.inf, np.inf]
    grads = attention_backward(q, k, v, do, Options(sm_scale=1.0, window_right=-2))
    assert not grads.dq[0, 0, :2].any()
    assert grads.dv[0, 0].tolist() == [[1] * 4, [0] * 4]
