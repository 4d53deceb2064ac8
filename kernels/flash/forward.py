"""Attention forward after FlashAttention-2 (Dao, arXiv:2307.08691, algorithm 1): one program per block of
queries.

WIDTH is the compiled head_dim, of which a tile has PIECE columns at most; EXACT: it is that of the call, and
rows of B are dense.
PART columns of Out are made by one program, which needs all scores: where sums of WIDTH columns do not fit
the registers, a block
takes several programs. PACKED: few queries of all heads that share a head of K are the rows of one block,
which takes all queries:
so K and V are read once for them. STEP is 0 where the queries stay in registers; otherwise they are read
again for every block of keys, as many
columns at a time.
"""

import triton
import triton.language as tl

from .common import LN2, LOG2E
from .features import dropout_gain, dropout_key, dropout_limit, kept, only, sequence_of, window_of
from .tiles import (
    add_products,
    gather_pieces,
    load_piece,
    load_pieces,
    piece_count,
    product,
    scatter_pieces,
    store_pieces,
    zero_pieces,
)


@triton.jit
def _block_ranges(first, last, left, right, n_k, WINDOW: tl.constexpr, BLOCK: tl.constexpr):
    """Blocks of keys for the queries first .. last: (begin, full_begin, full_end, end).

    All of the queries see every key of the blocks full_begin .. full_end-1, none sees one outside of begin ..
    end-1.
    """
    if WINDOW:
        # no position is below 0 when it is divided, which rounds toward zero
        end = tl.cdiv(tl.maximum(tl.minimum(last + right + 1, n_k), 0), BLOCK)
        begin = tl.minimum(tl.maximum(first - left, 0) // BLOCK, end)
        full_begin = tl.minimum(tl.maximum(tl.cdiv(tl.maximum(last - left, 0), BLOCK), begin), end)
        full_end = tl.maximum(tl.minimum(first + right + 1, n_k), 0) // BLOCK
        return begin, full_begin, tl.minimum(tl.maximum(full_end, full_begin), end), end
    return 0, 0, n_k // BLOCK, tl.cdiv(n_k, BLOCK)


@triton.jit
def _bias(
    B, stride_bm, stride_bn, start_q, start, n_q, n_k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """A tile of the bias in float32; rows beyond the last one repeat it, columns beyond the last one are
    0."""
    row = tl.minimum(start_q + tl.arange(0, BLOCK_M), n_q - 1)[:, None]
    column = tl.arange(0, BLOCK_N)[None, :]
    step = 1 if EXACT else stride_bn
    pointers = B + start * step + (row * stride_bm + column * step)
    if MASKED:
        return tl.load(pointers, mask=start + column < n_k, other=0.0).to(tl.float32)
    return tl.load(pointers).to(tl.float32)


@triton.jit
def _products(
    Q, K, stride_qm, stride_kn, start_q, start, n_q, n_k, head_dim,
    STEP: tl.constexpr, MASKED: tl.constexpr, EXACT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Q K^T of a block of queries and one of keys; the length of the loop is not a constant, else the
    compiler unrolls it and loads
    all columns before the first product.
    """
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for at in tl.range(0, head_dim, STEP, num_stages=1):
        q = load_piece(Q, stride_qm, start_q, n_q, at, head_dim, BLOCK_M, STEP, True, EXACT)
        k = load_piece(K, stride_kn, start, n_k, at, head_dim, BLOCK_N, STEP, MASKED, EXACT)
        total = tl.dot(q, tl.trans(k), total, input_precision="ieee")
    return total


@triton.jit
def _attend(
    acc, row_max, row_sum, q,
    Q, K, V, B,
    stride_qm, stride_kn, stride_vn, stride_bm, stride_bn,
    start, start_q, low, span, n_q, n_k, head_dim, head_dim_v, scale, key, plane, limit,
    MASK: tl.constexpr, DROPOUT: tl.constexpr, MASKED: tl.constexpr,
    WIDTH: tl.constexpr, PART: tl.constexpr, PIECE: tl.constexpr, EXACT: tl.constexpr, STEP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Online softmax over the keys start .. start+BLOCK_N-1. MASKED: query i sees the span[i] keys from
    low[i] on, of those below n_k."""
    if MASK == "bias":
        # before the product: so the compiler keeps the scores in the product's layout and moves the bias
        # there
        bias = _bias(B, stride_bm, stride_bn, start_q, start, n_q, n_k, BLOCK_M, BLOCK_N, MASKED, EXACT)
    if STEP == 0:
        k = load_pieces(K, stride_kn, start, n_k, head_dim, BLOCK_N, WIDTH, PIECE, MASKED, EXACT)
        scores = product(q, k, WIDTH, PIECE)
    else:
        scores = _products(
            Q, K, stride_qm, stride_kn, start_q, start, n_q, n_k, head_dim,
            STEP, MASKED, EXACT, BLOCK_M, BLOCK_N,
        )  # fmt: skip
    if MASK == "bias":
        scores = tl.fma(scores, tl.zeros_like(scores) + scale, bias)
    else:
        scores *= scale
    if MASKED:
        keys = (start + tl.arange(0, BLOCK_N))[None, :]
        if MASK == "window":
            # one comparison for both bounds: keys before the first one become large numbers
            seen = (keys - low[:, None]).to(tl.uint32, bitcast=True) < span.to(tl.uint32, bitcast=True)[
                :, None
            ]
        else:
            seen = keys < span[:, None]
        scores = tl.where(seen, scores, -float("inf"))
    new_max = tl.maximum(row_max, tl.max(scores, 1))
    shift = new_max
    if MASKED or MASK == "bias":
        # a row without keys so far has no maximum, and inf - inf is not a number
        shift = tl.where(new_max == -float("inf"), 0.0, new_max)
    if MASK == "bias":
        # near the end of float32's range only differences may be scaled
        p = tl.exp2((scores - shift[:, None]) * LOG2E)
        correction = tl.exp2((row_max - shift) * LOG2E)
    else:
        p = tl.exp2(scores - shift[:, None])
        correction = tl.exp2(row_max - shift)
    row_sum = row_sum * correction + tl.sum(p, 1)
    if DROPOUT:
        p = only(kept(key, plane, start_q, start, limit, BLOCK_M, BLOCK_N), p)
    corrected = ()
    for i in tl.static_range(piece_count(PART, PIECE)):
        corrected += (acc[i] * correction[:, None],)
    v = load_pieces(V, stride_vn, start, n_k, head_dim_v, BLOCK_N, PART, PIECE, MASKED, EXACT)
    acc = add_products(corrected, p.to(V.dtype.element_ty), v, PART, PIECE)
    return acc, new_max, row_sum


@triton.jit
def _packing(seqlen_q, BLOCK_M: tl.constexpr):
    """Logarithm of the rows for one head in a block of at most 16 rows: the smallest power of two at or above
    `seqlen_q`."""
    tl.static_assert(BLOCK_M == 16)
    return (
        (seqlen_q > 1).to(tl.int32)
        + (seqlen_q > 2).to(tl.int32)
        + (seqlen_q > 4).to(tl.int32)
        + (seqlen_q > 8).to(tl.int32)
    )


@triton.jit
def attn_fwd(
    Q, K, V, B, L, Out,
    stride_qz, stride_qh, stride_qm, stride_kz, stride_kh, stride_kn, stride_vz, stride_vh, stride_vn,
    stride_bz, stride_bh, stride_bm, stride_bn, stride_lz, stride_lh, stride_lm, stride_oz, stride_oh, stride_om,
    num_head_q, group, seqlen_q, seqlen_k, head_dim, head_dim_v,
    seqinfo_q0, seqinfo_q1, seqinfo_k0, seqinfo_k1, varlen_bits, lse_packed,
    sm_scale, window_left, window_right,
    dropout_p, philox_seed, philox_offset1, philox_offset2, philox_seed_output, philox_offset_output,
    MASK: tl.constexpr, DROPOUT: tl.constexpr,
    WIDTH: tl.constexpr, PART: tl.constexpr, PIECE: tl.constexpr, EXACT: tl.constexpr, STEP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Out = softmax(Q K^T sm_scale) V and L = log-sum-exp; shapes as in operators.py, grid (query blocks x
    parts,
    heads, batch).
    """
    WINDOW: tl.constexpr = MASK == "window"
    block = tl.program_id(0)
    part = 0
    if PART < WIDTH:
        blocks = tl.cdiv(seqlen_q, BLOCK_M)
        part = block // blocks
        block = block % blocks
    # unsigned as sequence_of's results
    head = tl.program_id(1).to(tl.uint32)
    batch = tl.program_id(2).to(tl.uint32)
    head_k = head // group.to(tl.uint32)
    rows = tl.arange(0, BLOCK_M)
    heads = tl.zeros_like(rows)
    if PACKED:
        shift = _packing(seqlen_q, BLOCK_M)
        member = tl.program_id(1) % group
        if (member & ((BLOCK_M >> shift) - 1)) != 0:
            return  # another program has this head
        heads = rows >> shift
        rows = rows & ((1 << shift) - 1)
    if WINDOW:
        # late queries see the most keys: start them first, so that the last wave of programs is short
        block = tl.cdiv(seqlen_q, BLOCK_M) - 1 - block
    start_q = block * BLOCK_M
    plane_q, first_q, n_q = sequence_of(batch, varlen_bits & 255, seqinfo_q0, seqinfo_q1, seqlen_q)
    plane_k, first_k, n_k = sequence_of(batch, varlen_bits >> 8, seqinfo_k0, seqinfo_k1, seqlen_k)
    # a block beyond the end of a short sequence reads and writes nothing
    n_k = tl.where(start_q < n_q, n_k, 0)
    Q += plane_q * stride_qz + head * stride_qh + first_q * stride_qm
    K += plane_k * stride_kz + head_k * stride_kh + first_k * stride_kn
    V += plane_k * stride_vz + head_k * stride_vh + first_k * stride_vn
    V += part * PART
    head_dim_v -= part * PART
    Out += part * PART
    B += batch * stride_bz + head * stride_bh
    Out += plane_q * stride_oz + head * stride_oh + first_q * stride_om
    wants_lse = (L.to(tl.int64) != 0) & (part == 0)  # inference passes no L
    L += batch * stride_lz + head * stride_lh + first_q * lse_packed * stride_lm

    plane = batch * num_head_q + head
    key = 0
    limit = 0
    gain = 1.0
    if DROPOUT:
        key = dropout_key(philox_seed, philox_offset1, philox_offset2)
        limit = dropout_limit(dropout_p)
        gain = dropout_gain(dropout_p)
        if (tl.program_id(0) == 0) & (plane == 0):
            if philox_seed_output.to(tl.int64) != 0:
                tl.store(philox_seed_output, tl.load(philox_seed))
            if philox_offset_output.to(tl.int64) != 0:
                tl.store(philox_offset_output, tl.load(philox_offset1) + philox_offset2)

    queries = start_q + rows
    inside = queries < n_q
    q = 0
    if PACKED:
        inside = inside & (heads < group - member)
        q = gather_pieces(Q, heads * stride_qh + queries * stride_qm, inside, WIDTH, PIECE)
    elif STEP == 0:
        q = load_pieces(Q, stride_qm, start_q, n_q, head_dim, BLOCK_M, WIDTH, PIECE, True, EXACT)
    acc = zero_pieces(BLOCK_M, PART, PIECE)
    row_max = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    scale = sm_scale if MASK == "bias" else sm_scale * LOG2E
    low = queries
    span = tl.zeros_like(queries) + n_k
    if WINDOW:
        window_left, window_right = window_of(window_left, window_right, n_q, n_k)
        low = tl.maximum(queries - window_left, 0)
        span = tl.maximum(tl.minimum(queries + window_right + 1, n_k) - low, 0)
    last_q = tl.minimum(start_q + BLOCK_M, n_q) - 1
    begin, full_begin, full_end, end = _block_ranges(
        start_q, last_q, window_left, window_right, n_k, WINDOW, BLOCK_N
    )
    for start in tl.range(full_begin * BLOCK_N, full_end * BLOCK_N, BLOCK_N):
        acc, row_max, row_sum = _attend(
            acc, row_max, row_sum, q, Q, K, V, B, stride_qm, stride_kn, stride_vn, stride_bm, stride_bn,
            start, start_q, low, span, n_q, n_k, head_dim, head_dim_v, scale, key, plane, limit,
            MASK, DROPOUT, False, WIDTH, PART, PIECE, EXACT, STEP, BLOCK_M, BLOCK_N,
        )  # fmt: skip
    # one block, or two with a causal bound and few queries: a pipeline would be code that never runs
    stages: tl.constexpr = 1 if not WINDOW or BLOCK_M <= BLOCK_N else None
    before = full_begin - begin
    for index in tl.range(0, before + end - full_end, num_stages=stages):
        # one loop for the blocks on both sides of the full ones keeps the image small
        masked = tl.where(index < before, begin + index, full_end + index - before)
        acc, row_max, row_sum = _attend(
            acc, row_max, row_sum, q, Q, K, V, B, stride_qm, stride_kn, stride_vn, stride_bm, stride_bn,
            masked * BLOCK_N, start_q, low, span, n_q, n_k, head_dim, head_dim_v, scale, key, plane, limit,
            MASK, DROPOUT, True, WIDTH, PART, PIECE, EXACT, STEP, BLOCK_M, BLOCK_N,
        )  # fmt: skip

    empty = row_sum == 0.0
    row_sum = tl.where(empty, 1.0, row_sum)
    factor = (gain / row_sum)[:, None]
    if PACKED:
        scatter_pieces(Out, heads * stride_oh + queries * stride_om, inside, acc, factor, WIDTH, PIECE)
    else:
        store_pieces(
            Out, stride_om, start_q, n_q, 0, head_dim_v, acc, factor,
            BLOCK_M, PART, PIECE, EXACT,
        )  # fmt: skip
    lse = row_max * (1.0 if MASK == "bias" else LN2) + tl.log2(row_sum) * LN2
    # +inf makes exp(score - LSE) zero in the backward pass, which is what a row without keys needs
    lse = tl.where(empty, float("inf"), lse)
    if wants_lse:
        tl.store(L + (heads * stride_lh + queries * stride_lm), lse, mask=inside)
