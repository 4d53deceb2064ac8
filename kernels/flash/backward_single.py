"""dK and dV by programs of their own, for a wide head_dim: the sums of one fit the registers.

Serves what backward.py's `bwd_dk_dv` serves with EXACT, without bias, dropout and varlen, on the same arguments.
Both programs compute the scores, so that there are five products per pair of blocks instead of four.
"""

import triton
import triton.language as tl

from .common import LOG2E
from .tiles import add_products, load_pieces, product, store_pieces, zero_pieces


@triton.jit
def _vector(base, start, limit, other, SIZE: tl.constexpr, MASKED: tl.constexpr):
    index = start + tl.arange(0, SIZE)
    if not MASKED:
        return tl.load(base + index)
    return tl.where(index < limit, tl.load(base + tl.minimum(index, limit - 1)), other)


@triton.jit
def _add_queries(
    sums, k, v, Q, DO, L, D, stride_qm, stride_dom, start, start_k, low, span, n_q, scale,
    KEYS: tl.constexpr, WINDOW: tl.constexpr, MASKED: tl.constexpr, WIDTH: tl.constexpr, PIECE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """What the queries start .. start+BLOCK_M-1 add to dK (KEYS) or dV. Tiles are (keys, queries)."""
    q = load_pieces(Q, stride_qm, start, n_q, WIDTH, BLOCK_M, WIDTH, PIECE, MASKED, True)
    do = load_pieces(DO, stride_dom, start, n_q, WIDTH, BLOCK_M, WIDTH, PIECE, MASKED, True)
    lse = _vector(L, start, n_q, float("inf"), BLOCK_M, MASKED)[None, :]
    p = tl.exp2(product(k, q, WIDTH, PIECE) * scale - lse * LOG2E)
    if MASKED and WINDOW:
        lows = low + start + tl.arange(0, BLOCK_M)
        seen = (start_k + tl.arange(0, BLOCK_N))[:, None] - lows[None, :]
        p = tl.where(seen.to(tl.uint32, bitcast=True) < span.to(tl.uint32, bitcast=True), p, 0.0)
    if KEYS:
        delta = _vector(D, start, n_q, 0.0, BLOCK_M, MASKED)[None, :]
        ds = p * (product(v, do, WIDTH, PIECE) - delta)
        return add_products(sums, ds.to(q[0].dtype), q, WIDTH, PIECE)
    return add_products(sums, p.to(do[0].dtype), do, WIDTH, PIECE)


@triton.jit
def _sums(
    k, v, Q, DO, L, D, stride_qh, stride_qm, stride_doh, stride_dom, stride_lh, stride_dh, start_k, n_q, n_k, group,
    window_left, window_right, scale,
    KEYS: tl.constexpr, WINDOW: tl.constexpr, WIDTH: tl.constexpr, PIECE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """dK (KEYS) or dV of a block of keys, over all queries of the heads that share it; blocks as in backward.py."""
    first = 0
    first_full = 0
    end = tl.cdiv(n_q, BLOCK_M)
    end_full = n_q // BLOCK_M
    low = 0
    span = 0
    if WINDOW:
        low = -window_left
        span = tl.maximum(window_left + window_right + 1, 0)
        last_k = tl.minimum(start_k + BLOCK_N, n_k) - 1
        end = tl.cdiv(tl.maximum(tl.minimum(last_k + window_left + 1, n_q), 0), BLOCK_M)
        first = tl.minimum(tl.maximum(start_k - window_right, 0) // BLOCK_M, end)
        first_full = tl.minimum(tl.cdiv(tl.maximum(last_k - window_right, 0), BLOCK_M), end)
        end_full = tl.maximum(tl.minimum(start_k + window_left + 1, n_q), 0) // BLOCK_M
        end_full = tl.maximum(end_full, first_full)
    before = first_full - first
    sums = zero_pieces(BLOCK_N, WIDTH, PIECE)
    for _ in range(0, group):
        for index in tl.range(0, before + end - end_full, num_stages=1):
            block = tl.where(index < before, first + index, end_full + index - before)
            sums = _add_queries(
                sums, k, v, Q, DO, L, D, stride_qm, stride_dom, block * BLOCK_M, start_k, low, span, n_q, scale,
                KEYS, WINDOW, True, WIDTH, PIECE, BLOCK_M, BLOCK_N,
            )  # fmt: skip
        for block in tl.range(first_full, end_full, num_stages=STAGES):
            sums = _add_queries(
                sums, k, v, Q, DO, L, D, stride_qm, stride_dom, block * BLOCK_M, start_k, low, span, n_q, scale,
                KEYS, WINDOW, False, WIDTH, PIECE, BLOCK_M, BLOCK_N,
            )  # fmt: skip
        Q += stride_qh
        DO += stride_doh
        L += stride_lh
        D += stride_dh
    return sums


@triton.jit
def bwd_dk_dv(
    Q, K, V, B, DO, DK, DV, L, D, philox_seed, philox_offset1, seqinfo_q0, seqinfo_q1, seqinfo_k0, seqinfo_k1,
    stride_qz, stride_qh, stride_qm, stride_kz, stride_kh, stride_kn, stride_vz, stride_vh, stride_vn,
    stride_bz, stride_bh, stride_bm, stride_bn,
    stride_doz, stride_doh, stride_dom, stride_dkz, stride_dkh, stride_dkn, stride_dvz, stride_dvh, stride_dvn,
    stride_lz, stride_lh, stride_lm, stride_dz, stride_dh, stride_dm, philox_offset2,
    num_head_q, group, seqlen_q, seqlen_k, head_dim, head_dim_v, window_left, window_right, varlen_bits, lse_packed,
    sm_scale, dropout_p,
    WIDTH: tl.constexpr, WINDOW: tl.constexpr, BIAS: tl.constexpr, DROPOUT: tl.constexpr,
    BLOCK_M: tl.constexpr, VALUE_M: tl.constexpr, BLOCK_N: tl.constexpr, PART: tl.constexpr, PIECE: tl.constexpr,
    STAGES: tl.constexpr, VALUE_STAGES: tl.constexpr,
):  # fmt: skip
    """dK or dV of one block of keys; grid (key blocks times 2, key heads, batch)."""
    tl.static_assert(2 * PART == WIDTH and not BIAS and not DROPOUT)
    block = tl.program_id(0) // 2
    start_k = block * BLOCK_N
    head_k = tl.program_id(1).to(tl.uint32)
    batch = tl.program_id(2).to(tl.uint32)
    first_head = head_k * group
    Q += batch * stride_qz + first_head * stride_qh
    DO += batch * stride_doz + first_head * stride_doh
    L += batch * stride_lz + first_head * stride_lh
    D += batch * stride_dz + first_head * stride_dh
    K += batch * stride_kz + head_k * stride_kh
    V += batch * stride_vz + head_k * stride_vh
    k = load_pieces(K, stride_kn, start_k, seqlen_k, WIDTH, BLOCK_N, WIDTH, PIECE, True, True)
    scale = sm_scale * LOG2E
    if tl.program_id(0) % 2 == 0:
        v = load_pieces(V, stride_vn, start_k, seqlen_k, WIDTH, BLOCK_N, WIDTH, PIECE, True, True)
        dk = _sums(
            k, v, Q, DO, L, D, stride_qh, stride_qm, stride_doh, stride_dom, stride_lh, stride_dh, start_k,
            seqlen_q, seqlen_k, group, window_left, window_right, scale,
            True, WINDOW, WIDTH, PIECE, BLOCK_M, BLOCK_N, STAGES,
        )  # fmt: skip
        DK += batch * stride_dkz + head_k * stride_dkh
        store_pieces(DK, stride_dkn, start_k, seqlen_k, 0, WIDTH, dk, sm_scale, BLOCK_N, WIDTH, PIECE, True)
    else:
        dv = _sums(
            k, k, Q, DO, L, D, stride_qh, stride_qm, stride_doh, stride_dom, stride_lh, stride_dh, start_k,
            seqlen_q, seqlen_k, group, window_left, window_right, scale,
            False, WINDOW, WIDTH, PIECE, VALUE_M, BLOCK_N, VALUE_STAGES,
        )  # fmt: skip
        DV += batch * stride_dvz + head_k * stride_dvh
        store_pieces(DV, stride_dvn, start_k, seqlen_k, 0, WIDTH, dv, 1.0, BLOCK_N, WIDTH, PIECE, True)
