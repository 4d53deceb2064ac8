"""Attention forward for wgmma: one group of four warps copies K and V to shared memory, two or three multiply
64 queries each.

Serves what forward.py's `attn_fwd` serves with EXACT, without bias, dropout, varlen and packed heads, on the
same arguments.
A multiplying group computes the scores of a block of keys while the tensor cores multiply P V of the block
before.
Tiles have FIRST columns, and REST more in tiles of their own where WIDTH is not a power of two.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

LOG2E: gl.constexpr = gl.constexpr(1.4426950408889634)
LN2: gl.constexpr = gl.constexpr(0.6931471805599453)
ROWS: gl.constexpr = gl.constexpr(64)
"""Queries of a multiplying group: the rows of a wgmma."""
COPY_THREADS: gl.constexpr = gl.constexpr(128)
PARTS: gl.constexpr = gl.constexpr(4)
"""Chains of additions per row: one would wait for the result of each."""


@gluon.jit
def _block_ranges(
    start_q, left, right, n_q, n_k, WINDOW: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK: gl.constexpr
):
    """Blocks of keys as in forward.py: (all, those with a mask, of these before the full ones, begin,
    full_begin, full_end)."""
    if WINDOW:
        last = gl.minimum(start_q + BLOCK_M, n_q) - 1
        end = gl.cdiv(gl.maximum(gl.minimum(last + right + 1, n_k), 0), BLOCK)
        begin = gl.minimum(gl.maximum(start_q - left, 0) // BLOCK, end)
        full_begin = gl.minimum(gl.maximum(gl.cdiv(gl.maximum(last - left, 0), BLOCK), begin), end)
        full_end = gl.maximum(gl.minimum(start_q + right + 1, n_k), 0) // BLOCK
        full_end = gl.minimum(gl.maximum(full_end, full_begin), end)
    else:
        end = gl.cdiv(n_k, BLOCK)
        begin = end * 0
        full_begin = begin
        full_end = n_k // BLOCK
    before = full_begin - begin
    # without any block: one of which nothing is seen
    masked = gl.where(end == begin, 1, before + end - full_end)
    return gl.maximum(end - begin, 1), masked, before, begin, full_begin, full_end


@gluon.jit
def _first_key(index, masked, before, begin, full_begin, full_end, BLOCK: gl.constexpr):
    """First key of the block that is taken as number `index`: those with a mask come first."""
    with_mask = gl.where(index < before, begin + index, full_end + index - before)
    return gl.where(index < masked, with_mask, full_begin + index - masked) * BLOCK


@gluon.jit
def _offsets(stride, ROWS_: gl.constexpr, COLUMNS: gl.constexpr):
    """Rows of a tile, and its elements' offsets, in a layout whose threads copy 16 bytes each."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // COLUMNS, COLUMNS // 8], [4, 1], [1, 0])
    rows = gl.arange(0, ROWS_, gl.SliceLayout(1, layout))
    columns = gl.arange(0, COLUMNS, gl.SliceLayout(0, layout))
    return rows[:, None], rows[:, None] * stride.to(gl.int32) + columns[None, :]


@gluon.jit
def _copy(
    Q, K, V, stride_qm, stride_kn, stride_vn, start_q, n_q, left, right, n_k,
    q_tiles, k_tiles, v_tiles, q_rest, k_rest, v_rest, q_full, k_full, k_free, v_full, v_free,
    WINDOW: gl.constexpr, FIRST: gl.constexpr, REST: gl.constexpr, GROUPS: gl.constexpr, BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Fills the tiles in the order in which they are multiplied; a barrier is complete when all threads'
    copies have arrived."""
    queries, offsets_q = _offsets(stride_qm, ROWS, FIRST)
    keys, offsets_k = _offsets(stride_kn, BLOCK_N, FIRST)
    keys, offsets_v = _offsets(stride_vn, BLOCK_N, FIRST)
    if REST > 0:
        queries_rest, rest_q = _offsets(stride_qm, ROWS, REST)
        keys_rest, rest_k = _offsets(stride_kn, BLOCK_N, REST)
        keys_rest, rest_v = _offsets(stride_vn, BLOCK_N, REST)
    for member in gl.static_range(GROUPS):
        first = start_q + member * ROWS
        base_q = Q + first.to(gl.int64) * stride_qm
        async_copy.async_load(q_tiles.index(member), base_q + offsets_q, mask=first + queries < n_q)
        if REST > 0:
            async_copy.async_load(
                q_rest.index(member), base_q + FIRST + rest_q, mask=first + queries_rest < n_q
            )
        async_copy.mbarrier_arrive(q_full.index(member), increment_count=False)
    total, masked, before, begin, full_begin, full_end = _block_ranges(
        start_q, left, right, n_q, n_k, WINDOW, GROUPS * ROWS, BLOCK_N
    )
    for index in range(total):
        start = _first_key(index, masked, before, begin, full_begin, full_end, BLOCK_N)
        stage = index % STAGES
        phase = (index // STAGES & 1) ^ 1
        base_k = K + start.to(gl.int64) * stride_kn
        mbarrier.wait(k_free.index(stage), phase)
        async_copy.async_load(k_tiles.index(stage), base_k + offsets_k, mask=start + keys < n_k)
        if REST > 0:
            async_copy.async_load(k_rest.index(stage), base_k + FIRST + rest_k, mask=start + keys_rest < n_k)
        async_copy.mbarrier_arrive(k_full.index(stage), increment_count=False)
        base_v = V + start.to(gl.int64) * stride_vn
        mbarrier.wait(v_free.index(stage), phase)
        async_copy.async_load(v_tiles.index(stage), base_v + offsets_v, mask=start + keys < n_k)
        if REST > 0:
            async_copy.async_load(v_rest.index(stage), base_v + FIRST + rest_v, mask=start + keys_rest < n_k)
        async_copy.mbarrier_arrive(v_full.index(stage), increment_count=False)
    async_copy.commit_group()
    async_copy.wait_group(0)


@gluon.jit
def _row_max(x, layout: gl.constexpr):
    parts = gl.max(gl.reshape(x, (x.shape[0], PARTS, x.shape[1] // PARTS)), 1)
    return gl.convert_layout(gl.max(parts, 1), gl.SliceLayout(1, layout))


@gluon.jit
def _row_sum(x, layout: gl.constexpr):
    parts = gl.sum(gl.reshape(x, (x.shape[0], PARTS, x.shape[1] // PARTS)), 1)
    return gl.convert_layout(gl.sum(parts, 1), gl.SliceLayout(1, layout))


@gluon.jit
def _softmax(
    scores, row_max, row_sum, scale, start, low, span,
    MASKED: gl.constexpr, WINDOW: gl.constexpr, BLOCK_N: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    """Online softmax: exponentials, the new maximum and sum, and the factor of what was summed before;
    `scale` is above 0."""
    if MASKED:
        keys = (start + gl.arange(0, BLOCK_N, gl.SliceLayout(0, layout)))[None, :]
        if WINDOW:
            # one comparison for both bounds: keys before the first one become large numbers
            seen = (keys - low[:, None]).to(gl.uint32, bitcast=True) < span.to(gl.uint32, bitcast=True)[
                :, None
            ]
        else:
            seen = keys < span[:, None]
        scores = gl.where(seen, scores, -float("inf"))
    new_max = gl.maximum(row_max, _row_max(scores, layout))
    shift = new_max
    if MASKED:
        # a row without keys so far has no maximum, and inf - inf is not a number
        shift = gl.where(new_max == -float("inf"), 0.0, new_max)
    p = gl.exp2((scores - shift[:, None]) * scale)
    correction = gl.exp2((row_max - shift) * scale)
    return p, new_max, row_sum * correction + _row_sum(p, layout), correction


@gluon.jit
def _scores(q, k, q_rest, k_rest, REST: gl.constexpr, BLOCK_N: gl.constexpr):
    """Starts Q K^T: one product, or two with REST."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    zero = gl.zeros((ROWS, BLOCK_N), gl.float32, layout)
    scores = warpgroup_mma(q, k.permute((1, 0)), zero, use_acc=False, is_async=True)
    if REST > 0:
        scores = warpgroup_mma(q_rest, k_rest.permute((1, 0)), scores, is_async=True)
    return scores


@gluon.jit
def _step(
    acc, rest, p, row_max, row_sum, q, index, start, scale, low, span,
    k_tiles, v_tiles, q_rest, k_rest, v_rest, k_full, k_free, v_full, v_free,
    MASKED: gl.constexpr, WINDOW: gl.constexpr, FIRST: gl.constexpr, REST: gl.constexpr, BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Scores and softmax of block `index`, and P V of the block before."""
    score_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    out_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, FIRST, 16])
    stage = index % STAGES
    last = (index - 1) % STAGES
    mbarrier.wait(k_full.index(stage), index // STAGES & 1)
    fence_async_shared()
    scores = _scores(q, k_tiles.index(stage), q_rest, k_rest.index(stage), REST, BLOCK_N)
    mbarrier.wait(v_full.index(last), (index - 1) // STAGES & 1)
    fence_async_shared()
    acc = warpgroup_mma(p, v_tiles.index(last), acc, is_async=True)
    if REST > 0:
        rest_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, REST, 16])
        p_rest = gl.convert_layout(p, gl.DotOperandLayout(0, rest_layout, 2))
        rest = warpgroup_mma(p_rest, v_rest.index(last), rest, is_async=True)
        scores = warpgroup_mma_wait(2, deps=[scores])
    else:
        scores = warpgroup_mma_wait(1, deps=[scores])
    mbarrier.arrive(k_free.index(stage), count=1)
    p, row_max, row_sum, correction = _softmax(
        scores, row_max, row_sum, scale, start, low, span, MASKED, WINDOW, BLOCK_N, score_layout
    )
    if REST > 0:
        acc, rest = warpgroup_mma_wait(0, deps=[acc, rest])
        rest = rest * gl.convert_layout(correction, gl.SliceLayout(1, rest_layout))[:, None]
    else:
        acc = warpgroup_mma_wait(0, deps=[acc])
    mbarrier.arrive(v_free.index(last), count=1)
    acc = acc * gl.convert_layout(correction, gl.SliceLayout(1, out_layout))[:, None]
    p = gl.convert_layout(p.to(k_tiles.dtype), gl.DotOperandLayout(0, out_layout, 2))
    return acc, rest, p, row_max, row_sum


@gluon.jit
def _store(Out, stride_om, start_q, n_q, sums, row_sum, tile, COLUMNS: gl.constexpr):
    """Rows of Out, 16 bytes per thread, through the tile of shared memory that held the queries."""
    sum_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16])
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // COLUMNS, COLUMNS // 8], [4, 1], [1, 0])
    factor = gl.convert_layout(1.0 / row_sum, gl.SliceLayout(1, sum_layout))
    tile.store((sums * factor[:, None]).to(tile.dtype))
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    columns = gl.arange(0, COLUMNS, gl.SliceLayout(0, layout))
    pointers = Out + start_q.to(gl.int64) * stride_om + (rows[:, None] * stride_om + columns[None, :])
    gl.store(pointers, tile.load(layout), mask=(start_q + rows < n_q)[:, None])


@gluon.jit
def _negate(tile, COLUMNS: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // COLUMNS, COLUMNS // 8], [4, 1], [1, 0])
    tile.store(-tile.load(layout))


@gluon.jit
def _multiply(
    Out, L, stride_lm, stride_om, start_q, n_q, left, right, n_k, sm_scale,
    q_tiles, k_tiles, v_tiles, q_rests, k_rest, v_rest, q_full, k_full, k_free, v_full, v_free,
    member: gl.constexpr,
    WINDOW: gl.constexpr, FIRST: gl.constexpr, REST: gl.constexpr, GROUPS: gl.constexpr, BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Out and L of the queries start_q + 64 member and the 63 after it."""
    score_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    out_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, FIRST, 16])
    # above 0, so that the largest product has the largest score, and -inf times it is -inf
    scale = gl.maximum(gl.abs(sm_scale) * LOG2E, 1.1754943508222875e-38)
    start_q += member * ROWS
    queries = start_q + gl.arange(0, ROWS, gl.SliceLayout(1, score_layout))
    low = queries
    span = gl.zeros_like(queries) + n_k
    if WINDOW:
        low = gl.maximum(queries - left, 0)
        span = gl.maximum(gl.minimum(queries + right + 1, n_k) - low, 0)
    total, masked, before, begin, full_begin, full_end = _block_ranges(
        start_q - member * ROWS, left, right, n_q, n_k, WINDOW, GROUPS * ROWS, BLOCK_N
    )
    row_max = gl.full((ROWS,), -float("inf"), gl.float32, gl.SliceLayout(1, score_layout))
    row_sum = gl.zeros((ROWS,), gl.float32, gl.SliceLayout(1, score_layout))
    acc = gl.zeros((ROWS, FIRST), gl.float32, out_layout)
    rest = total  # no tile
    if REST > 0:
        rest_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, REST, 16])
        rest = gl.zeros((ROWS, REST), gl.float32, rest_layout)
    q = q_tiles.index(member)
    q_rest = q_rests.index(member)
    mbarrier.wait(q_full.index(member), 0)
    if sm_scale < 0:
        _negate(q, FIRST)
        if REST > 0:
            _negate(q_rest, REST)
    mbarrier.wait(k_full.index(0), 0)
    fence_async_shared()
    scores = _scores(q, k_tiles.index(0), q_rest, k_rest.index(0), REST, BLOCK_N)
    scores = warpgroup_mma_wait(0, deps=[scores])
    mbarrier.arrive(k_free.index(0), count=1)
    start = _first_key(0, masked, before, begin, full_begin, full_end, BLOCK_N)
    p, row_max, row_sum, _ = _softmax(
        scores, row_max, row_sum, scale, start, low, span, True, WINDOW, BLOCK_N, score_layout
    )
    p = gl.convert_layout(p.to(k_tiles.dtype), gl.DotOperandLayout(0, out_layout, 2))
    for index in range(1, masked):
        start = _first_key(index, masked, before, begin, full_begin, full_end, BLOCK_N)
        acc, rest, p, row_max, row_sum = _step(
            acc, rest, p, row_max, row_sum, q, index, start, scale, low, span,
            k_tiles, v_tiles, q_rest, k_rest, v_rest, k_full, k_free, v_full, v_free,
            True, WINDOW, FIRST, REST, BLOCK_N, STAGES,
        )  # fmt: skip
    for index in range(gl.maximum(masked, 1), total):
        acc, rest, p, row_max, row_sum = _step(
            acc, rest, p, row_max, row_sum, q, index, 0, scale, low, span,
            k_tiles, v_tiles, q_rest, k_rest, v_rest, k_full, k_free, v_full, v_free,
            False, WINDOW, FIRST, REST, BLOCK_N, STAGES,
        )  # fmt: skip
    last = (total - 1) % STAGES
    mbarrier.wait(v_full.index(last), (total - 1) // STAGES & 1)
    fence_async_shared()
    acc = warpgroup_mma(p, v_tiles.index(last), acc, is_async=True)
    if REST > 0:
        p_rest = gl.convert_layout(p, gl.DotOperandLayout(0, rest_layout, 2))
        rest = warpgroup_mma(p_rest, v_rest.index(last), rest, is_async=True)
        acc, rest = warpgroup_mma_wait(0, deps=[acc, rest])
    else:
        acc = warpgroup_mma_wait(0, deps=[acc])

    empty = row_sum == 0.0
    row_sum = gl.where(empty, 1.0, row_sum)
    _store(Out, stride_om, start_q, n_q, acc, row_sum, q, FIRST)
    if REST > 0:
        _store(Out + FIRST, stride_om, start_q, n_q, rest, row_sum, q_rest, REST)
    if L.to(gl.int64) != 0:  # inference passes no L
        lse = row_max * scale * LN2 + gl.log2(row_sum) * LN2
        # +inf makes exp(score - LSE) zero in the backward pass, which is what a row without keys needs
        lse = gl.where(empty, float("inf"), lse)
        gl.store(L + queries * stride_lm, lse, mask=queries < n_q)


@gluon.constexpr_function
def _swizzled(columns):
    """Layout of a tile in shared memory as wgmma reads it."""
    return gl.NVMMASharedLayout(swizzle_byte_width=min(128, 2 * columns), element_bitwidth=16, rank=2)


@gluon.jit
def attn_fwd(
    Q, K, V, B, L, Out,
    stride_qz, stride_qh, stride_qm, stride_kz, stride_kh, stride_kn, stride_vz, stride_vh, stride_vn,
    stride_bz, stride_bh, stride_bm, stride_bn, stride_lz, stride_lh, stride_lm, stride_oz, stride_oh, stride_om,
    num_head_q, group, seqlen_q, seqlen_k, head_dim, head_dim_v,
    seqinfo_q0, seqinfo_q1, seqinfo_k0, seqinfo_k1, varlen_bits, lse_packed,
    sm_scale, window_left, window_right,
    dropout_p, philox_seed, philox_offset1, philox_offset2, philox_seed_output, philox_offset_output,
    MASK: gl.constexpr, DROPOUT: gl.constexpr, WIDTH: gl.constexpr, PART: gl.constexpr, FIRST: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr,
    MULTIPLY_REGISTERS: gl.constexpr, COPY_REGISTERS: gl.constexpr,
):  # fmt: skip
    """Out and L as forward.py's `attn_fwd` makes them; grid (query blocks, heads, batch)."""
    gl.static_assert(BLOCK_M == 2 * ROWS or BLOCK_M == 3 * ROWS)
    gl.static_assert(PART == WIDTH)
    gl.static_assert(not DROPOUT)
    WINDOW: gl.constexpr = MASK == "window"
    GROUPS: gl.constexpr = BLOCK_M // ROWS
    REST: gl.constexpr = WIDTH - FIRST
    dtype: gl.constexpr = Q.dtype.element_ty
    head = gl.program_id(1)
    batch = gl.program_id(2)
    head_k = head // group
    block = gl.program_id(0)
    if WINDOW:
        # late queries see the most keys: start them first, so that the last wave of programs is short
        block = gl.cdiv(seqlen_q, BLOCK_M) - 1 - block
    start_q = block * BLOCK_M
    Q += batch * stride_qz + head * stride_qh
    K += batch * stride_kz + head_k * stride_kh
    V += batch * stride_vz + head_k * stride_vh
    Out += batch * stride_oz + head * stride_oh
    L += gl.where(L.to(gl.int64) != 0, batch * stride_lz + head * stride_lh, 0)
    swizzled: gl.constexpr = _swizzled(FIRST)
    q_tiles = gl.allocate_shared_memory(dtype, [GROUPS, ROWS, FIRST], swizzled)
    k_tiles = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, FIRST], swizzled)
    v_tiles = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, FIRST], swizzled)
    q_rest = q_tiles
    k_rest = k_tiles
    v_rest = v_tiles
    if REST > 0:
        swizzled_rest: gl.constexpr = _swizzled(REST)
        q_rest = gl.allocate_shared_memory(dtype, [GROUPS, ROWS, REST], swizzled_rest)
        k_rest = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, REST], swizzled_rest)
        v_rest = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, REST], swizzled_rest)
    q_full = mbarrier.allocate_mbarrier(batch=GROUPS)
    k_full = mbarrier.allocate_mbarrier(batch=STAGES)
    k_free = mbarrier.allocate_mbarrier(batch=STAGES)
    v_full = mbarrier.allocate_mbarrier(batch=STAGES)
    v_free = mbarrier.allocate_mbarrier(batch=STAGES)
    for member in gl.static_range(GROUPS):
        mbarrier.init(q_full.index(member), count=COPY_THREADS)
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_full.index(stage), count=COPY_THREADS)
        mbarrier.init(v_full.index(stage), count=COPY_THREADS)
        mbarrier.init(k_free.index(stage), count=GROUPS)
        mbarrier.init(v_free.index(stage), count=GROUPS)
    fence_async_shared()
    # tuples are written out: one in a variable would make its constants run-time values
    if GROUPS == 2:
        gl.warp_specialize(
            [
                (
                    _multiply,
                    (
                        Out, L, stride_lm, stride_om, start_q, seqlen_q, window_left, window_right, seqlen_k, sm_scale,
                        q_tiles, k_tiles, v_tiles, q_rest, k_rest, v_rest, q_full, k_full, k_free, v_full, v_free,
                        0, WINDOW, FIRST, REST, GROUPS, BLOCK_N, STAGES,
                    ),
                ),
                (
                    _multiply,
                    (
                        Out, L, stride_lm, stride_om, start_q, seqlen_q, window_left, window_right, seqlen_k, sm_scale,
                        q_tiles, k_tiles, v_tiles, q_rest, k_rest, v_rest, q_full, k_full, k_free, v_full, v_free,
                        1, WINDOW, FIRST, REST, GROUPS, BLOCK_N, STAGES,
                    ),
                ),
                (
                    _copy,
                    (
                        Q, K, V, stride_qm, stride_kn, stride_vn, start_q, seqlen_q, window_left, window_right, seqlen_k,
                        q_tiles, k_tiles, v_tiles, q_rest, k_rest, v_rest, q_full, k_full, k_free, v_full, v_free,
                        WINDOW, FIRST, REST, GROUPS, BLOCK_N, STAGES,
                    ),
                ),
            ],
            [4, 4],
            [MULTIPLY_REGISTERS, COPY_REGISTERS],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (
                    _multiply,
                    (
                        Out, L, stride_lm, stride_om, start_q, seqlen_q, window_left, window_right, seqlen_k, sm_scale,
                        q_tiles, k_tiles, v_tiles, q_rest, k_rest, v_rest, q_full, k_full, k_free, v_full, v_free,
                        0, WINDOW, FIRST, REST, GROUPS, BLOCK_N, STAGES,
                    ),
                ),
                (
                    _multiply,
                    (
                        Out, L, stride_lm, stride_om, start_q, seqlen_q, window_left, window_right, seqlen_k, sm_scale,
                        q_tiles, k_tiles, v_tiles, q_rest, k_rest, v_rest, q_full, k_full, k_free, v_full, v_free,
                        1, WINDOW, FIRST, REST, GROUPS, BLOCK_N, STAGES,
                    ),
                ),
                (
                    _multiply,
                    (
                        Out, L, stride_lm, stride_om, start_q, seqlen_q, window_left, window_right, seqlen_k, sm_scale,
                        q_tiles, k_tiles, v_tiles, q_rest, k_rest, v_rest, q_full, k_full, k_free, v_full, v_free,
                        2, WINDOW, FIRST, REST, GROUPS, BLOCK_N, STAGES,
                    ),
                ),
                (
                    _copy,
                    (
                        Q, K, V, stride_qm, stride_kn, stride_vn, start_q, seqlen_q, window_left, window_right, seqlen_k,
                        q_tiles, k_tiles, v_tiles, q_rest, k_rest, v_rest, q_full, k_full, k_free, v_full, v_free,
                        WINDOW, FIRST, REST, GROUPS, BLOCK_N, STAGES,
                    ),
                ),
            ],
            [4, 4, 4],
            [MULTIPLY_REGISTERS, MULTIPLY_REGISTERS, COPY_REGISTERS],
        )  # fmt: skip
