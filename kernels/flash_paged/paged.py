"""Attention over pages: online softmax (Dao, arXiv:2307.08691, algorithm 1) with keys divided among programs,
and the kernel that combines their results. operators.py has shapes and meaning of all arguments.
"""

import triton
import triton.language as tl

LN2 = tl.constexpr(0.6931471805599453)
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _tanh(x):
    """Both ends are exact: 2 / inf is 0, and 2 / 1 is 2."""
    return 1.0 - 2.0 / (tl.exp2(x * (2.0 * LOG2E)) + 1.0)


@triton.jit
def _tile(base, offsets, dtype: tl.constexpr, WIDTH: tl.constexpr):
    """WIDTH elements from each of `offsets` on; 8 bits become the dtype by way of float32, exactly."""
    tile = tl.load(base + (offsets[:, None] + tl.arange(0, WIDTH)[None, :]))
    if base.dtype.element_ty != dtype:
        tile = tile.to(tl.float32)
        if dtype == tl.bfloat16:
            # of so few digits the high half is the complete number: GPUs without an instruction need not round
            tile = (tile.to(tl.uint32, bitcast=True) >> 16).to(tl.uint16).to(dtype, bitcast=True)
        else:
            tile = tile.to(dtype)
    return tile


@triton.jit
def _products(
    Q, K, rows, inside, keys, head_dim, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STEP: tl.constexpr
):
    """Q K^T, STEP columns at a time; the length of the loop is not a constant, else the compiler unrolls it and
    loads all columns before the first product.
    """
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for at in tl.range(0, head_dim, STEP, num_stages=1):
        columns = at + tl.arange(0, STEP)
        q = tl.load(Q + (rows[:, None] + columns[None, :]), mask=inside[:, None], other=0.0)
        k = _tile(K + at, keys, Q.dtype.element_ty, STEP)
        total = tl.dot(q, tl.trans(k), total, input_precision="ieee")
    return total


@triton.jit
def _with_sink(sinks, head, row_max, row_sum):
    """(maximum, sum of exponentials, correction of sums before) with one more logit for each row; base 2."""
    sink = tl.load(sinks + head) * LOG2E
    new_max = tl.maximum(row_max, sink)
    correction = tl.exp2(row_max - new_max)
    return new_max, row_sum * correction + tl.exp2(sink - new_max), correction


@triton.jit
def paged_attn(
    Q, K, V, Out, L, O_part, L_part, sinks, k_scale, v_scale, block_table, cu_seqlens_q, seqused_k,
    stride_qm, stride_qh, stride_kp, stride_kn, stride_kh, stride_vp, stride_vn, stride_vh,
    stride_om, stride_oh, stride_lm, stride_lh, stride_table, stride_scale,
    num_head_q, num_head_k, group, page_size, num_splits, split_keys, causal, window_left, head_dim,
    sm_scale, softcap,
    WIDTH: tl.constexpr, SCALED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """One split for BLOCK_M rows, which are all heads of a group for one query after the other: K and V are
    read once for them. STEP is 0 where the queries stay in registers; otherwise they are read again for every
    block of keys, as many columns at a time. Grid (blocks of rows, key heads x splits, sequences).
    """
    dtype: tl.constexpr = Q.dtype.element_ty
    head_k = tl.program_id(1) % num_head_k
    split = tl.program_id(1) // num_head_k
    sequence = tl.program_id(2)
    first_q = tl.load(cu_seqlens_q + sequence)
    n_q = tl.load(cu_seqlens_q + sequence + 1) - first_q
    start = tl.program_id(0) * BLOCK_M
    if start >= n_q * group:
        return
    n_k = tl.load(seqused_k + sequence)
    row = start + tl.arange(0, BLOCK_M)
    query = row // group
    head = head_k * group + row % group
    inside = query < n_q
    token = (first_q + query).to(tl.int64)
    columns = tl.arange(0, WIDTH)
    rows = token * stride_qm + head * stride_qh
    q = 0
    if STEP == 0:
        q = tl.load(Q + (rows[:, None] + columns[None, :]), mask=inside[:, None], other=0.0)

    # row r sees the keys low[r] .. high[r] - 1, the block no key outside of begin .. end - 1
    shift = n_k - n_q
    last_q = tl.minimum((start + BLOCK_M - 1) // group, n_q - 1)
    begin = split * split_keys
    end = tl.minimum(begin + split_keys, n_k)
    low = tl.zeros_like(query)
    high = tl.zeros_like(query) + end
    if causal != 0:
        high = tl.minimum(query + (shift + 1), end)
        end = tl.minimum(last_q + shift + 1, end)
    if window_left >= 0:
        low = query + (shift - window_left)
        begin = tl.maximum(start // group + shift - window_left, begin)

    scale = sm_scale
    factor = 1.0
    if SCALED:
        scale *= tl.load(k_scale + head_k * stride_scale)
        factor = tl.load(v_scale + head_k * stride_scale)
    scale = tl.where(softcap != 0.0, scale / softcap, scale * LOG2E)
    K += head_k * stride_kh
    V += head_k * stride_vh
    block_table += sequence * stride_table
    acc = tl.zeros((BLOCK_M, WIDTH), tl.float32)
    row_max = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    for at in tl.range(begin, end, BLOCK_N):
        keys = at + tl.arange(0, BLOCK_N)
        # the last key again instead of keys beyond it: that costs no branch
        near = tl.minimum(keys, end - 1)
        page = tl.load(block_table + near // page_size).to(tl.int64)
        place = near % page_size
        offsets = page * stride_kp + place * stride_kn
        if STEP == 0:
            k = _tile(K, offsets, dtype, WIDTH)
            scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        else:
            scores = _products(Q, K, rows, inside, offsets, head_dim, BLOCK_M, BLOCK_N, STEP) * scale
        if softcap != 0.0:
            scores = _tanh(scores) * (softcap * LOG2E)
        seen = (keys[None, :] < high[:, None]) & (keys[None, :] >= low[:, None])
        scores = tl.where(seen, scores, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        # a row without keys so far has no maximum, and inf - inf is not a number
        base = tl.where(new_max == -float("inf"), 0.0, new_max)
        p = tl.exp2(scores - base[:, None])
        correction = tl.exp2(row_max - base)
        row_sum = row_sum * correction + tl.sum(p, 1)
        v = _tile(V, page * stride_vp + place * stride_vn, dtype, WIDTH)
        acc = tl.dot(p.to(dtype), v, acc * correction[:, None], input_precision="ieee")
        row_max = new_max

    if num_splits == 1:
        if sinks.to(tl.int64) != 0:
            row_max, row_sum, correction = _with_sink(sinks, head, row_max, row_sum)
            acc *= correction[:, None]
        empty = row_sum == 0.0
        row_sum = tl.where(empty, 1.0, row_sum)
        acc *= (factor / row_sum)[:, None]
        pointers = Out + ((token * stride_om + head * stride_oh)[:, None] + columns[None, :])
        tl.store(pointers, acc.to(dtype), mask=inside[:, None])
        if L.to(tl.int64) != 0:
            lse = tl.where(empty, float("inf"), (row_max + tl.log2(row_sum)) * LN2)
            tl.store(L + (token * stride_lm + head * stride_lh), lse, mask=inside)
    else:
        written = inside & (row_sum > 0.0)
        row_sum = tl.where(row_sum > 0.0, row_sum, 1.0)
        acc *= (factor / row_sum)[:, None]
        place = (token * num_head_q + head) * num_splits + split
        tl.store(O_part + (place[:, None] * WIDTH + columns[None, :]), acc, mask=written[:, None])
        tl.store(L_part + place, (row_max + tl.log2(row_sum)) * LN2, mask=inside)


@triton.jit
def paged_combine(
    O_part, L_part, sinks, Out, L, stride_om, stride_oh, stride_lm, stride_lh, num_head_q, num_splits,
    WIDTH: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Out and L of one query and head from those of all splits, BLOCK_S at a time. Grid (queries x heads)."""
    token = (tl.program_id(0) // num_head_q).to(tl.int64)
    head = tl.program_id(0) % num_head_q
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, WIDTH)
    acc = tl.zeros((WIDTH,), tl.float32)
    row_max = -float("inf")
    row_sum = 0.0
    for at in tl.range(0, num_splits, BLOCK_S):
        splits = at + tl.arange(0, BLOCK_S)
        place = row * num_splits + splits
        lse = tl.load(L_part + place, mask=splits < num_splits, other=-float("inf"))
        some = lse.to(tl.int32, bitcast=True) != -0x800000  # the bits of -inf
        lse *= LOG2E
        new_max = tl.maximum(row_max, tl.max(lse, 0))
        base = tl.maximum(new_max, -3.0e38)  # inf - inf is not a number
        weight = tl.exp2(lse - base)
        correction = tl.exp2(row_max - base)
        # what a split without keys left in its rows is never read
        pointers = O_part + (place[:, None] * WIDTH + columns[None, :])
        parts = tl.load(pointers, mask=some[:, None], other=0.0)
        acc = acc * correction + tl.sum(parts * weight[:, None], 0)
        row_sum = row_sum * correction + tl.sum(weight, 0)
        row_max = new_max
    if sinks.to(tl.int64) != 0:
        row_max, row_sum, correction = _with_sink(sinks, head, row_max, row_sum)
        acc *= correction
    empty = row_sum == 0.0
    row_sum = tl.where(empty, 1.0, row_sum)
    tl.store(Out + (token * stride_om + head * stride_oh) + columns, (acc / row_sum).to(Out.dtype.element_ty))
    if L.to(tl.int64) != 0:
        lse = tl.where(empty, float("inf"), (row_max + tl.log2(row_sum)) * LN2)
        tl.store(L + (token * stride_lm + head * stride_lh), lse)


@triton.jit
def _stored(x, scale, kind: tl.constexpr, SCALED: tl.constexpr):
    """x / scale in the cache's type: to nearest, ties to even, and no further than its largest numbers."""
    if not SCALED:
        return x.to(kind)
    x = x.to(tl.float32) / scale
    high: tl.constexpr = 127.0 if kind == tl.int8 else 448.0 if kind == tl.float8e4nv else 57344.0
    low: tl.constexpr = -128.0 if kind == tl.int8 else -high
    # not minimum and maximum: NaN stays NaN
    x = tl.where(x > high, high, x)
    x = tl.where(x < low, low, x)
    if kind == tl.int8:
        # adding 1.5 * 2^23 leaves no fraction
        return ((x + 12582912.0) - 12582912.0).to(tl.int8)
    return x.to(kind)


@triton.jit
def reshape_and_cache(
    K_new, V_new, K, V, k_scale, v_scale, slots,
    stride_nm, stride_nh, stride_wm, stride_wh, stride_kp, stride_kn, stride_kh, stride_vp, stride_vn, stride_vh,
    stride_scale, page_size,
    WIDTH: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """A token's K and V of one head into its page. Grid (tokens, key heads)."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    slot = tl.load(slots + token)
    if slot < 0:
        return
    page = (slot.to(tl.int32) // page_size).to(tl.int64)
    place = slot.to(tl.int32) % page_size
    columns = tl.arange(0, WIDTH)
    k_factor = 1.0
    v_factor = 1.0
    if SCALED:
        k_factor = tl.load(k_scale + head * stride_scale)
        v_factor = tl.load(v_scale + head * stride_scale)
    k = tl.load(K_new + (token * stride_nm + head * stride_nh) + columns)
    v = tl.load(V_new + (token * stride_wm + head * stride_wh) + columns)
    to_k = K + (page * stride_kp + place * stride_kn + head * stride_kh) + columns
    to_v = V + (page * stride_vp + place * stride_vn + head * stride_vh) + columns
    tl.store(to_k, _stored(k, k_factor, K.dtype.element_ty, SCALED))
    tl.store(to_v, _stored(v, v_factor, V.dtype.element_ty, SCALED))
