"""Attention backward after FlashAttention-2 (Dao, arXiv:2307.08691, algorithm 2), without atomics and so
deterministic.

One kernel owns blocks of keys and makes dK and dV, the other owns blocks of queries and makes dQ and dB; both
rebuild the probabilities from the log-sum-exp. P = exp(S - L), dV = (W P)^T dO, dP = W (dO V^T), dS = P (dP -
D), dQ
= dS K, dK = dS^T Q, dB = dS, each with S = Q K^T sm_scale + B, D = rowsum(O dO) and dropout's factors W.

WIDTH is the compiled head_dim; EXACT: it is that of the call, and rows of B and DB are dense. PART columns of
the results
are made by one program, so that their sums fit the registers: a wide head_dim takes several programs per
block.
"""

import triton
import triton.language as tl

from .common import LOG2E
from .features import dropout_gain, dropout_key, dropout_limit, kept, only, sequence_of, window_of
from .tiles import (
    add_products,
    load_piece,
    load_pieces,
    piece_count,
    piece_size,
    piece_start,
    product,
    store_pieces,
    zero_pieces,
)


@triton.jit
def bwd_preprocess(
    Out, DO, D, seqinfo_q0, seqinfo_q1,
    stride_oz, stride_oh, stride_om, stride_doz, stride_doh, stride_dom, stride_dz, stride_dh, stride_dm,
    seqlen_q, head_dim_v, varlen_bits, lse_packed,
    WIDTH: tl.constexpr, EXACT: tl.constexpr, BLOCK_M: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    """D = rowsum(Out * DO) in float32; grid (query blocks, heads, batch)."""
    start_q = tl.program_id(0) * BLOCK_M
    # unsigned as sequence_of's results
    head = tl.program_id(1).to(tl.uint32)
    batch = tl.program_id(2).to(tl.uint32)
    plane, first, n_q = sequence_of(batch, varlen_bits & 255, seqinfo_q0, seqinfo_q1, seqlen_q)
    if start_q >= n_q:
        return
    Out += plane * stride_oz + head * stride_oh
    DO += plane * stride_doz + head * stride_doh
    D += batch * stride_dz + head * stride_dh
    if varlen_bits != 0:
        Out += first * stride_om
        DO += first * stride_dom
        D += first * lse_packed * stride_dm
    total = tl.zeros((BLOCK_M,), tl.float32)
    for i in tl.static_range(piece_count(WIDTH, PIECE)):
        at = piece_start(WIDTH, PIECE, i)
        out = load_piece(
            Out,
            stride_om,
            start_q,
            n_q,
            at,
            head_dim_v,
            BLOCK_M,
            piece_size(WIDTH, PIECE, i),
            True,
            EXACT,
            True,
        )
        do = load_piece(
            DO,
            stride_dom,
            start_q,
            n_q,
            at,
            head_dim_v,
            BLOCK_M,
            piece_size(WIDTH, PIECE, i),
            True,
            EXACT,
            True,
        )
        total += tl.sum(out.to(tl.float32) * do.to(tl.float32), 1)
    queries = start_q + tl.arange(0, BLOCK_M)
    if EXACT:
        tl.store(D + queries, total, mask=queries < n_q)
    else:
        tl.store(D + queries * stride_dm, total, mask=queries < n_q)


@triton.jit
def _rows(base, stride, start, limit, other, SIZE: tl.constexpr, MASKED: tl.constexpr, EXACT: tl.constexpr):
    """Elements start .. start+SIZE-1 of a vector, `stride` apart (EXACT: 1); `other` from `limit` on (above
    `start`)."""
    index = start + tl.arange(0, SIZE)
    inside = index
    if MASKED:
        # rereading the last element costs less than a branch around every load
        inside = tl.minimum(index, limit - 1)
    found = tl.load(base + inside) if EXACT else tl.load(base + inside * stride)
    return tl.where(index < limit, found, other) if MASKED else found


@triton.jit
def _bias(
    B, stride_m, stride_n, row, column, n_q, n_k, ROWS: tl.constexpr, COLS: tl.constexpr, EXACT: tl.constexpr
):
    """A tile of the bias in float32; 0 outside of the matrix."""
    rows = row + tl.arange(0, ROWS)
    columns = column + tl.arange(0, COLS)
    if EXACT:
        pointers = (
            B
            + row * stride_m
            + column
            + (tl.arange(0, ROWS)[:, None] * stride_m + tl.arange(0, COLS)[None, :])
        )
    else:
        pointers = B + (rows[:, None] * stride_m + columns[None, :] * stride_n)
    inside = (rows[:, None] < n_q) & (columns[None, :] < n_k)
    return tl.load(pointers, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _products(
    A, stride_a, start_a, limit_a, B, stride_b, start_b, limit_b, columns,
    ROWS_A: tl.constexpr, ROWS_B: tl.constexpr, WIDTH: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """A B^T over all columns of two tiles in memory, few columns at a time: neither is held in registers."""
    STEP: tl.constexpr = 32 if WIDTH % 32 == 0 else 16
    total = tl.zeros((ROWS_A, ROWS_B), tl.float32)
    for at in range(0, WIDTH if EXACT else columns, STEP):
        a = load_piece(A, stride_a, start_a, limit_a, at, columns, ROWS_A, STEP, True, EXACT)
        b = load_piece(B, stride_b, start_b, limit_b, at, columns, ROWS_B, STEP, True, EXACT)
        total = tl.dot(a, tl.trans(b), total, input_precision="ieee")
    return total


@triton.jit
def _probabilities(dots, lse, bias, sm_scale, scale, BIAS: tl.constexpr):
    """exp(score - lse); `lse` broadcasts to the tile. With a bias by the natural logarithm: a large one times
    log2(e) overflows."""
    if BIAS:
        return tl.exp2((dots * sm_scale + bias - lse) * LOG2E)
    return tl.exp2(dots * scale - lse * LOG2E)


@triton.jit
def _add_queries(
    dk, dv, k, v,
    Q, K, V, DO, B, L, D,
    stride_qm, stride_kn, stride_vn, stride_dom, stride_bm, stride_bn, stride_lm, stride_dm,
    start, start_k, part, low, span, n_q, n_k, head_dim, head_dim_v, sm_scale, scale, key, plane, limit, gain,
    WINDOW: tl.constexpr, BIAS: tl.constexpr, DROPOUT: tl.constexpr, MASKED: tl.constexpr,
    WIDTH: tl.constexpr, PART: tl.constexpr, PIECE: tl.constexpr, EXACT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HOLD: tl.constexpr, APART: tl.constexpr,
):  # fmt: skip
    """What the queries start .. start+BLOCK_M-1 add to dK and dV (neither scaled yet).

    Tiles are transposed, (keys, queries). Keys beyond the sequence need no mask: they reach rows that are not
    stored.
    """
    if HOLD:
        q = load_pieces(Q, stride_qm, start, n_q, head_dim, BLOCK_M, WIDTH, PIECE, MASKED, EXACT)
        do = load_pieces(DO, stride_dom, start, n_q, head_dim_v, BLOCK_M, WIDTH, PIECE, MASKED, EXACT)
        dots = product(k, q, WIDTH, PIECE)
    else:
        dots = _products(
            K, stride_kn, start_k, n_k, Q, stride_qm, start, n_q, head_dim, BLOCK_N, BLOCK_M, WIDTH, EXACT
        )
        q = load_pieces(Q + part, stride_qm, start, n_q, head_dim - part, BLOCK_M, PART, PIECE, True, EXACT)
        do = load_pieces(
            DO + part, stride_dom, start, n_q, head_dim_v - part, BLOCK_M, PART, PIECE, True, EXACT
        )
    lse = _rows(L, stride_lm, start, n_q, float("inf"), BLOCK_M, MASKED, EXACT)[None, :]
    delta = _rows(D, stride_dm, start, n_q, 0.0, BLOCK_M, MASKED, EXACT)[None, :]
    bias = 0.0
    if BIAS:
        bias = tl.trans(_bias(B, stride_bm, stride_bn, start, start_k, n_q, n_k, BLOCK_M, BLOCK_N, EXACT))
    p = _probabilities(dots, lse, bias, sm_scale, scale, BIAS)
    if MASKED and WINDOW:
        # a query sees the keys low + query .. low + query + span - 1
        lows = low + start + tl.arange(0, BLOCK_M)
        seen = (start_k + tl.arange(0, BLOCK_N))[:, None] - lows[None, :]
        p = tl.where(seen.to(tl.uint32, bitcast=True) < span.to(tl.uint32, bitcast=True), p, 0.0)
    weighted = p
    if DROPOUT:
        keep = tl.trans(kept(key, plane, start, start_k, limit, BLOCK_M, BLOCK_N))
        weighted = only(keep, p)
    dv = add_products(dv, weighted.to(do[0].dtype), do, PART, PIECE, APART)
    if HOLD:
        dp = product(v, do, WIDTH, PIECE)
    else:
        dp = _products(
            V, stride_vn, start_k, n_k, DO, stride_dom, start, n_q, head_dim_v, BLOCK_N, BLOCK_M, WIDTH, EXACT
        )
    if DROPOUT:
        dp = only(keep, dp * gain)
    ds = p * (dp - delta)
    dk = add_products(dk, ds.to(q[0].dtype), q, PART, PIECE)
    return dk, dv


@triton.jit
def bwd_dk_dv(
    Q, K, V, B, DO, DK, DV, L, D, philox_seed, philox_offset1, seqinfo_q0, seqinfo_q1, seqinfo_k0, seqinfo_k1,
    stride_qz, stride_qh, stride_qm, stride_kz, stride_kh, stride_kn, stride_vz, stride_vh, stride_vn,
    stride_bz, stride_bh, stride_bm, stride_bn,
    stride_doz, stride_doh, stride_dom, stride_dkz, stride_dkh, stride_dkn, stride_dvz, stride_dvh, stride_dvn,
    stride_lz, stride_lh, stride_lm, stride_dz, stride_dh, stride_dm, philox_offset2,
    num_head_q, group, seqlen_q, seqlen_k, head_dim, head_dim_v, window_left, window_right, varlen_bits, lse_packed,
    sm_scale, dropout_p,
    WIDTH: tl.constexpr, EXACT: tl.constexpr, WINDOW: tl.constexpr, BIAS: tl.constexpr, DROPOUT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PART: tl.constexpr, PIECE: tl.constexpr, HOLD: tl.constexpr,
    APART: tl.constexpr,
):  # fmt: skip
    """dK and dV of one block of keys, over all queries of every query head that shares it; grid (key blocks
    times
    parts, key heads, batch).
    """
    block = tl.program_id(0)
    part = 0
    if PART < WIDTH:
        blocks = tl.cdiv(seqlen_k, BLOCK_N)
        part = (block // blocks) * PART
        block = block % blocks
    start_k = block * BLOCK_N
    # unsigned as sequence_of's results
    head_k = tl.program_id(1).to(tl.uint32)
    batch = tl.program_id(2).to(tl.uint32)
    plane_q, first_q, n_q = sequence_of(batch, varlen_bits & 255, seqinfo_q0, seqinfo_q1, seqlen_q)
    plane_k, first_k, n_k = sequence_of(batch, varlen_bits >> 8, seqinfo_k0, seqinfo_k1, seqlen_k)
    if start_k >= n_k:
        return
    first_head = head_k * group
    Q += plane_q * stride_qz + first_head * stride_qh
    K += plane_k * stride_kz + head_k * stride_kh
    V += plane_k * stride_vz + head_k * stride_vh
    DO += plane_q * stride_doz + first_head * stride_doh
    DK += plane_k * stride_dkz + head_k * stride_dkh
    DV += plane_k * stride_dvz + head_k * stride_dvh
    L += batch * stride_lz + first_head * stride_lh
    D += batch * stride_dz + first_head * stride_dh
    if PART < WIDTH:
        DK += part
        DV += part
    if varlen_bits != 0:
        # a dense call needs none of this: the library has resolved its window
        Q += first_q * stride_qm
        K += first_k * stride_kn
        V += first_k * stride_vn
        DO += first_q * stride_dom
        DK += first_k * stride_dkn
        DV += first_k * stride_dvn
        L += first_q * lse_packed * stride_lm
        D += first_q * lse_packed * stride_dm
        if WINDOW:
            window_left, window_right = window_of(window_left, window_right, n_q, n_k)
    plane = batch * num_head_q + first_head
    key = tl.full((), 0, tl.uint64)
    limit = 0
    gain = 1.0
    if BIAS:
        B += batch * stride_bz + first_head * stride_bh
    if DROPOUT:
        key = dropout_key(philox_seed, philox_offset1, philox_offset2)
        limit = dropout_limit(dropout_p)
        gain = dropout_gain(dropout_p)
    k = ()
    v = ()
    if HOLD:
        k = load_pieces(K, stride_kn, start_k, n_k, head_dim, BLOCK_N, WIDTH, PIECE, True, EXACT)
        v = load_pieces(V, stride_vn, start_k, n_k, head_dim_v, BLOCK_N, WIDTH, PIECE, True, EXACT)
    # blocks of queries: none before `first` or from `end` on sees these keys, all of [first_full, end_full)
    # see every
    # one of them
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
    masked_before = first_full - first
    masked = masked_before + end - end_full

    scale = sm_scale * LOG2E
    dk = zero_pieces(BLOCK_N, PART, PIECE)
    dv = zero_pieces(BLOCK_N, PART, PIECE)
    for _ in range(0, group):
        # one loop for the blocks that need masks, on both sides of the full ones, keeps the image small
        for index in range(0, masked):
            block_q = tl.where(index < masked_before, first + index, end_full + index - masked_before)
            dk, dv = _add_queries(
                dk, dv, k, v, Q, K, V, DO, B, L, D,
                stride_qm, stride_kn, stride_vn, stride_dom, stride_bm, stride_bn, stride_lm, stride_dm,
                block_q * BLOCK_M, start_k, part, low, span, n_q, n_k, head_dim, head_dim_v, sm_scale, scale,
                key, plane, limit, gain,
                WINDOW, BIAS, DROPOUT, True, WIDTH, PART, PIECE, EXACT, BLOCK_M, BLOCK_N, HOLD, APART,
            )  # fmt: skip
        for block_q in range(first_full, end_full):
            dk, dv = _add_queries(
                dk, dv, k, v, Q, K, V, DO, B, L, D,
                stride_qm, stride_kn, stride_vn, stride_dom, stride_bm, stride_bn, stride_lm, stride_dm,
                block_q * BLOCK_M, start_k, part, low, span, n_q, n_k, head_dim, head_dim_v, sm_scale, scale,
                key, plane, limit, gain,
                WINDOW, BIAS, DROPOUT, False, WIDTH, PART, PIECE, EXACT, BLOCK_M, BLOCK_N, HOLD, APART,
            )  # fmt: skip
        Q += stride_qh
        DO += stride_doh
        L += stride_lh
        D += stride_dh
        plane += 1
        if BIAS:
            B += stride_bh
    store_pieces(DK, stride_dkn, start_k, n_k, 0, head_dim - part, dk, sm_scale, BLOCK_N, PART, PIECE, EXACT)
    store_pieces(DV, stride_dvn, start_k, n_k, 0, head_dim_v - part, dv, gain, BLOCK_N, PART, PIECE, EXACT)


@triton.jit
def _add_keys(
    dq, q, do, lse, delta, lows, spans,
    Q, K, V, DO, B, DB,
    stride_qm, stride_kn, stride_vn, stride_dom, stride_bm, stride_bn, stride_dbm, stride_dbn,
    start, start_q, part, n_q, n_k, head_dim, head_dim_v, sm_scale, scale, key, plane, limit, gain,
    BIAS: tl.constexpr, DROPOUT: tl.constexpr, MASKED: tl.constexpr,
    WIDTH: tl.constexpr, PART: tl.constexpr, PIECE: tl.constexpr, EXACT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HOLD: tl.constexpr,
):  # fmt: skip
    """What the keys start .. start+BLOCK_N-1 add to dQ (not yet scaled); stores their columns of dB."""
    if HOLD:
        k = load_pieces(K, stride_kn, start, n_k, head_dim, BLOCK_N, WIDTH, PIECE, MASKED, EXACT)
        v = load_pieces(V, stride_vn, start, n_k, head_dim_v, BLOCK_N, WIDTH, PIECE, MASKED, EXACT)
        dots = product(q, k, WIDTH, PIECE)
    else:
        dots = _products(
            Q, stride_qm, start_q, n_q, K, stride_kn, start, n_k, head_dim, BLOCK_M, BLOCK_N, WIDTH, EXACT
        )
        k = load_pieces(K + part, stride_kn, start, n_k, head_dim - part, BLOCK_N, PART, PIECE, True, EXACT)
    bias = 0.0
    if BIAS:
        bias = _bias(B, stride_bm, stride_bn, start_q, start, n_q, n_k, BLOCK_M, BLOCK_N, EXACT)
    p = _probabilities(dots, lse[:, None], bias, sm_scale, scale, BIAS)
    if MASKED:
        # a query sees `spans` keys from `lows` on; those beyond the sequence are none of them
        seen = start + tl.arange(0, BLOCK_N)[None, :] - lows[:, None]
        p = tl.where(seen.to(tl.uint32, bitcast=True) < spans[:, None].to(tl.uint32, bitcast=True), p, 0.0)
    if HOLD:
        dp = product(do, v, WIDTH, PIECE)
    else:
        dp = _products(
            DO, stride_dom, start_q, n_q, V, stride_vn, start, n_k, head_dim_v, BLOCK_M, BLOCK_N, WIDTH, EXACT
        )
    if DROPOUT:
        dp = only(kept(key, plane, start_q, start, limit, BLOCK_M, BLOCK_N), dp * gain)
    ds = (p * (dp - delta[:, None])).to(k[0].dtype)
    if BIAS:  # noqa: SIM102 - decided when it is compiled
        if (DB.to(tl.int64) != 0) & (part == 0):
            rows = start_q + tl.arange(0, BLOCK_M)
            columns = start + tl.arange(0, BLOCK_N)
            inside = (rows[:, None] < n_q) & (columns[None, :] < n_k)
            tl.store(DB + (rows[:, None] * stride_dbm + columns[None, :] * stride_dbn), ds, mask=inside)
    return add_products(dq, ds, k, PART, PIECE)


@triton.jit
def bwd_dq(
    Q, K, V, B, DO, DQ, DB, L, D, philox_seed, philox_offset1, seqinfo_q0, seqinfo_q1, seqinfo_k0, seqinfo_k1,
    stride_qz, stride_qh, stride_qm, stride_kz, stride_kh, stride_kn, stride_vz, stride_vh, stride_vn,
    stride_bz, stride_bh, stride_bm, stride_bn,
    stride_doz, stride_doh, stride_dom, stride_dqz, stride_dqh, stride_dqm,
    stride_dbz, stride_dbh, stride_dbm, stride_dbn,
    stride_lz, stride_lh, stride_lm, stride_dz, stride_dh, stride_dm, philox_offset2,
    num_head_q, group, seqlen_q, seqlen_k, head_dim, head_dim_v, window_left, window_right, varlen_bits, lse_packed,
    sm_scale, dropout_p,
    WIDTH: tl.constexpr, EXACT: tl.constexpr, WINDOW: tl.constexpr, BIAS: tl.constexpr, DROPOUT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PART: tl.constexpr, PIECE: tl.constexpr, HOLD: tl.constexpr,
):  # fmt: skip
    """dQ and dB of one block of queries; grid (query blocks times parts, heads, batch)."""
    block = tl.program_id(0)
    part = 0
    blocks = tl.cdiv(seqlen_q, BLOCK_M)
    if PART < WIDTH:
        part = (block // blocks) * PART
        block = block % blocks
    if WINDOW:
        # late queries see the most keys: start them first, so that the last wave of programs is short
        block = blocks - 1 - block
    start_q = block * BLOCK_M
    # unsigned as sequence_of's results
    head = tl.program_id(1).to(tl.uint32)
    batch = tl.program_id(2).to(tl.uint32)
    head_k = head // group.to(tl.uint32)
    plane_q, first_q, n_q = sequence_of(batch, varlen_bits & 255, seqinfo_q0, seqinfo_q1, seqlen_q)
    plane_k, first_k, n_k = sequence_of(batch, varlen_bits >> 8, seqinfo_k0, seqinfo_k1, seqlen_k)
    if start_q >= n_q:
        return
    Q += plane_q * stride_qz + head * stride_qh
    K += plane_k * stride_kz + head_k * stride_kh
    V += plane_k * stride_vz + head_k * stride_vh
    DO += plane_q * stride_doz + head * stride_doh
    DQ += plane_q * stride_dqz + head * stride_dqh
    L += batch * stride_lz + head * stride_lh
    D += batch * stride_dz + head * stride_dh
    if PART < WIDTH:
        DQ += part
    if varlen_bits != 0:
        Q += first_q * stride_qm
        K += first_k * stride_kn
        V += first_k * stride_vn
        DO += first_q * stride_dom
        DQ += first_q * stride_dqm
        L += first_q * lse_packed * stride_lm
        D += first_q * lse_packed * stride_dm
        if WINDOW:
            window_left, window_right = window_of(window_left, window_right, n_q, n_k)
    plane = batch * num_head_q + head
    key = tl.full((), 0, tl.uint64)
    limit = 0
    gain = 1.0
    if BIAS:
        B += batch * stride_bz + head * stride_bh
        DB = tl.where(DB.to(tl.int64) != 0, DB + batch * stride_dbz + head * stride_dbh, DB)
    if DROPOUT:
        key = dropout_key(philox_seed, philox_offset1, philox_offset2)
        limit = dropout_limit(dropout_p)
        gain = dropout_gain(dropout_p)

    q = ()
    do = ()
    if HOLD:
        q = load_pieces(Q, stride_qm, start_q, n_q, head_dim, BLOCK_M, WIDTH, PIECE, True, EXACT, True)
        do = load_pieces(DO, stride_dom, start_q, n_q, head_dim_v, BLOCK_M, WIDTH, PIECE, True, EXACT, True)
    lse = _rows(L, stride_lm, start_q, n_q, float("inf"), BLOCK_M, True, EXACT)
    delta = _rows(D, stride_dm, start_q, n_q, 0.0, BLOCK_M, True, EXACT)
    # blocks of keys as in bwd_dk_dv
    first = 0
    first_full = 0
    end = tl.cdiv(n_k, BLOCK_N)
    end_full = n_k // BLOCK_N
    lows = tl.zeros((BLOCK_M,), tl.int32)
    spans = lows + n_k
    if WINDOW:
        queries = start_q + tl.arange(0, BLOCK_M)
        lows = queries - window_left
        spans = tl.maximum(tl.minimum(queries + window_right + 1, n_k) - lows, 0)
        last_q = tl.minimum(start_q + BLOCK_M, n_q) - 1
        end = tl.cdiv(tl.maximum(tl.minimum(last_q + window_right + 1, n_k), 0), BLOCK_N)
        first = tl.minimum(tl.maximum(start_q - window_left, 0) // BLOCK_N, end)
        first_full = tl.minimum(tl.cdiv(tl.maximum(last_q - window_left, 0), BLOCK_N), end)
        end_full = tl.maximum(tl.minimum(start_q + window_right + 1, n_k), 0) // BLOCK_N
        end_full = tl.maximum(end_full, first_full)
    masked_before = first_full - first
    masked = masked_before + end - end_full

    dq = zero_pieces(BLOCK_M, PART, PIECE)
    scale = sm_scale * LOG2E
    for block_k in range(first_full, end_full):
        dq = _add_keys(
            dq, q, do, lse, delta, lows, spans, Q, K, V, DO, B, DB,
            stride_qm, stride_kn, stride_vn, stride_dom, stride_bm, stride_bn, stride_dbm, stride_dbn,
            block_k * BLOCK_N, start_q, part, n_q, n_k, head_dim, head_dim_v, sm_scale, scale, key, plane, limit, gain,
            BIAS, DROPOUT, False, WIDTH, PART, PIECE, EXACT, BLOCK_M, BLOCK_N, HOLD,
        )  # fmt: skip
    for index in range(0, masked):
        block_k = tl.where(index < masked_before, first + index, end_full + index - masked_before)
        dq = _add_keys(
            dq, q, do, lse, delta, lows, spans, Q, K, V, DO, B, DB,
            stride_qm, stride_kn, stride_vn, stride_dom, stride_bm, stride_bn, stride_dbm, stride_dbn,
            block_k * BLOCK_N, start_q, part, n_q, n_k, head_dim, head_dim_v, sm_scale, scale, key, plane, limit, gain,
            BIAS, DROPOUT, True, WIDTH, PART, PIECE, EXACT, BLOCK_M, BLOCK_N, HOLD,
        )  # fmt: skip
    store_pieces(DQ, stride_dqm, start_q, n_q, 0, head_dim - part, dq, sm_scale, BLOCK_M, PART, PIECE, EXACT)
