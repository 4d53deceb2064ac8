"""Attention forward for MFMA: scores of the next keys are multiplied during the softmax of these.

Serves what forward.py's `attn_fwd` serves with EXACT, without bias, dropout, varlen and packed heads, on the
same arguments.
K and V are read a block ahead. V is in shared memory as groups of four keys, so that a matrix instruction's
operand is one access.
P is multiplied by 1 + u and truncated, which takes half an instruction: so it errs by at most u, as a rounded
one does. Its sum is divided by 1 + u.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd.cdna3 import buffer_load, mfma

from .forward_warpgroups import _block_ranges

LOG2E: gl.constexpr = gl.constexpr(1.4426950408889634)
LN2: gl.constexpr = gl.constexpr(0.6931471805599453)
LARGEST: gl.constexpr = gl.constexpr(8.0)
"""Logarithm of the largest P: sums are scaled again only where it would be exceeded."""


@gluon.constexpr_function
def _quads(rows, columns, warps):
    """Layout of a tile of `columns` numbers for each of `rows` groups of four keys, four of a column side by
    side, as operand of a matrix instruction of 32 columns."""
    registers = [[0, 1], [0, 2]]
    registers += [[1 << bit, 0] for bit in range(1, rows.bit_length() - 1)]
    registers += [[0, 4 << bit] for bit in range(5, columns.bit_length() - 1)]
    lanes = [[0, 4 << bit] for bit in range(5)] + [[1, 0]]
    return gl.DistributedLinearLayout(
        registers, lanes, [[0, 0]] * (warps.bit_length() - 1), [], [rows, 4 * columns]
    )


@gluon.constexpr_function
def _rounding(dtype):
    """log2(1 + u)."""
    return 0.0007042690112466 if dtype.is_fp16() else 0.0056245491938781


@gluon.constexpr_function
def _shrinking(dtype):
    """1 / (1 + u)."""
    return 1 / (1 + 2**-11) if dtype.is_fp16() else 1 / (1 + 2**-8)


@gluon.jit
def _tile(base, stride, start, n_k, offsets, keys):
    """Rows from `start` on of K or V; those from n_k on are zero."""
    return buffer_load(base + start.to(gl.int64) * stride, offsets, mask=keys < n_k - start, other=0.0)


@gluon.jit
def _scores(q, tile, layout: gl.constexpr):
    """Q K^T with K in shared memory."""
    operand = tile.permute((1, 0)).load(gl.DotOperandLayout(1, layout, 8))
    return mfma(q, operand, gl.zeros((q.shape[0], tile.shape[0]), gl.float32, layout))


@gluon.constexpr_function
def _halves(rows, warps):
    """Layout of two numbers per row, one of each half of a wave."""
    lanes = [[1 << bit, 0] for bit in range(5)] + [[0, 1]]
    warp_bases = [[32 << bit, 0] for bit in range(warps.bit_length() - 1)]
    return gl.DistributedLinearLayout([], lanes, warp_bases, [], [rows, 2])


@gluon.jit
def _by_half(x):
    """A tile as a lane has it: of each group of eight keys, half a wave has four."""
    return gl.reshape(x, (x.shape[0], x.shape[1] // 8, 2, 4))


@gluon.jit
def _any_above(x, limit):
    """Whether a number of the wave is above its limit. Waves differ, so what depends on it has no barrier."""
    asm: gl.constexpr = "v_cmp_gt_f32 vcc, $1, $2\ns_cmp_lg_u64 vcc, 0\ns_cselect_b32 $0, 1, 0"
    return gl.inline_asm(asm, "=s,v,v,~{vcc},~{scc}", (x, limit), gl.int32, is_pure=True)


@gluon.jit
def _masked(scores, start, low, span, WINDOW: gl.constexpr, layout: gl.constexpr):
    keys = (start + gl.arange(0, scores.shape[1], gl.SliceLayout(0, layout)))[None, :]
    if WINDOW:
        # one comparison for both bounds: keys before the first one become large numbers
        distance = (keys - low[:, None]).to(gl.uint32, bitcast=True)
        seen = distance < span.to(gl.uint32, bitcast=True)[:, None]
    else:
        seen = keys < span[:, None]
    return gl.where(seen, scores, -float("inf"))


@gluon.jit
def _scaled(acc, scores, row_max, row_sum, scale, layout: gl.constexpr):
    """Sums and maximum, changed only where a P would exceed 2^LARGEST."""
    halves: gl.constexpr = _halves(scores.shape[0], gl.num_warps())
    highest = gl.convert_layout(gl.max(gl.max(_by_half(scores), 3), 1), halves)
    old = gl.convert_layout(row_max, gl.SliceLayout(1, halves))[:, None]
    if _any_above((highest - old) * scale, gl.full_like(highest, LARGEST)) != 0:
        new_max = gl.maximum(row_max, gl.convert_layout(gl.max(highest, 1), gl.SliceLayout(1, layout)))
        # a row without keys so far has no maximum, and inf - inf is not a number
        factor = gl.exp2((row_max - gl.where(new_max == -float("inf"), 0.0, new_max)) * scale)
        acc = acc * factor[:, None]
        row_sum = row_sum * gl.convert_layout(factor, gl.SliceLayout(1, halves))[:, None]
        row_max = new_max
    return acc, row_max, row_sum


@gluon.jit
def _exponentials(
    scores, row_max, row_sum, scale, MASKED: gl.constexpr, layout: gl.constexpr, dtype: gl.constexpr
):
    """P = exp2((scores - row_max) scale) as operand of P V, and its sums."""
    shift = row_max
    if MASKED:
        shift = gl.where(row_max == -float("inf"), 0.0, row_max)
    differences = scores - shift[:, None]
    zero = gl.zeros_like(differences)
    p = gl.exp2(gl.fma(differences, zero + scale, zero + _rounding(dtype)))
    row_sum += gl.convert_layout(gl.sum(gl.sum(_by_half(p), 3), 1), row_sum.type.layout)
    p = p.to(dtype, fp_downcast_rounding="rtz")
    return gl.convert_layout(p, gl.DotOperandLayout(0, layout, 4)), row_sum


@gluon.jit
def _store_quads(tile, v):
    """V as groups of four keys, those of a column side by side."""
    quads = gl.permute(gl.reshape(v, (v.shape[0] // 4, 4, v.shape[1])), (0, 2, 1))
    tile.store(gl.reshape(quads, tile.shape))


@gluon.jit
def _load_quads(tile, layout: gl.constexpr):
    ROWS: gl.constexpr = tile.shape[0]
    COLUMNS: gl.constexpr = tile.shape[1] // 4
    quads = gl.reshape(tile.load(_quads(ROWS, COLUMNS, gl.num_warps())), (ROWS, COLUMNS, 4))
    v = gl.reshape(gl.permute(quads, (0, 2, 1)), (4 * ROWS, COLUMNS))
    return gl.convert_layout(v, gl.DotOperandLayout(1, layout, 4))


@gluon.jit
def _first_key(index, full, before, begin, full_begin, full_end, BLOCK_N: gl.constexpr):
    """First key of the block that is taken as number `index`: those without a mask come first."""
    at = index - full
    masked = gl.where(at < before, begin + at, full_end + at - before)
    return gl.where(index < full, full_begin + index, masked) * BLOCK_N


@gluon.jit
def _attend(
    acc, row_max, row_sum, scores, k, v, q, K, V, offsets_k, offsets_v, keys_k, keys_v, k_tile, v_tile,
    stride_kn, stride_vn, start, second, third, n_k, low, span, scale,
    MASKED: gl.constexpr, WINDOW: gl.constexpr, layout: gl.constexpr, dtype: gl.constexpr,
):  # fmt: skip
    """Adds the keys from `start` on, of which `scores` and `v` are; scores of those from `second` on, of which `k`
    is; reads their V, and K from `third` on."""
    k_tile.store(k)
    _store_quads(v_tile, v)
    gl.barrier()  # which waits for reads, so the next ones begin behind it
    k = _tile(K, stride_kn, third, n_k, offsets_k, keys_k)
    v = _tile(V, stride_vn, second, n_k, offsets_v, keys_v)
    if MASKED:
        scores = _masked(scores, start, low, span, WINDOW, layout)
    acc, row_max, row_sum = _scaled(acc, scores, row_max, row_sum, scale, layout)
    following = _scores(q, k_tile, layout)
    p, row_sum = _exponentials(scores, row_max, row_sum, scale, MASKED, layout, dtype)
    acc = mfma(p, _load_quads(v_tile, layout), acc)
    return acc, row_max, row_sum, following, k, v


@gluon.jit
def attn_fwd(
    Q, K, V, B, L, Out,
    stride_qz, stride_qh, stride_qm, stride_kz, stride_kh, stride_kn, stride_vz, stride_vh, stride_vn,
    stride_bz, stride_bh, stride_bm, stride_bn, stride_lz, stride_lh, stride_lm, stride_oz, stride_oh, stride_om,
    num_head_q, group, seqlen_q, seqlen_k, head_dim, head_dim_v,
    seqinfo_q0, seqinfo_q1, seqinfo_k0, seqinfo_k1, varlen_bits, lse_packed,
    sm_scale, window_left, window_right,
    dropout_p, philox_seed, philox_offset1, philox_offset2, philox_seed_output, philox_offset_output,
    MASK: gl.constexpr, DROPOUT: gl.constexpr, WIDTH: gl.constexpr, PART: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, VERSION: gl.constexpr,
):  # fmt: skip
    """Out and L as forward.py's `attn_fwd` makes them; grid (query blocks, heads, batch)."""
    gl.static_assert(PART == WIDTH)
    gl.static_assert(not DROPOUT)
    WINDOW: gl.constexpr = MASK == "window"
    WARPS: gl.constexpr = gl.num_warps()
    dtype: gl.constexpr = Q.dtype.element_ty
    layout: gl.constexpr = gl.amd.AMDMFMALayout(VERSION, [32, 32, 8], True, [WARPS, 1])
    rows_layout: gl.constexpr = gl.BlockedLayout([1, 8], [512 // WIDTH, WIDTH // 8], [WARPS, 1], [1, 0])
    quad_layout: gl.constexpr = gl.BlockedLayout([4, 4], [256 // WIDTH, WIDTH // 4], [WARPS, 1], [1, 0])
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
    # above 0, so that the largest product has the largest score, and -inf times it is -inf
    scale = gl.maximum(gl.abs(sm_scale) * LOG2E, 1.1754943508222875e-38)

    rows = gl.arange(0, BLOCK_M, gl.SliceLayout(1, rows_layout))
    columns = gl.arange(0, WIDTH, gl.SliceLayout(0, rows_layout))[None, :]
    inside = (rows < seqlen_q - start_q)[:, None]
    offsets_q = rows[:, None] * stride_qm.to(gl.int32) + columns
    q = buffer_load(Q + start_q.to(gl.int64) * stride_qm, offsets_q, mask=inside, other=0.0)
    q = gl.convert_layout(gl.where(sm_scale < 0, -q, q), gl.DotOperandLayout(0, layout, 8))
    keys_k = gl.arange(0, BLOCK_N, gl.SliceLayout(1, rows_layout))[:, None]
    offsets_k = keys_k * stride_kn.to(gl.int32) + columns
    keys_v = gl.arange(0, BLOCK_N, gl.SliceLayout(1, quad_layout))[:, None]
    offsets_v = keys_v * stride_vn.to(gl.int32) + gl.arange(0, WIDTH, gl.SliceLayout(0, quad_layout))[None, :]
    k_tile = gl.allocate_shared_memory(dtype, [BLOCK_N, WIDTH], gl.SwizzledSharedLayout(8, 1, 8, [1, 0]))
    v_tile = gl.allocate_shared_memory(
        dtype, [BLOCK_N // 4, 4 * WIDTH], gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    )

    queries = start_q + gl.arange(0, BLOCK_M, gl.SliceLayout(1, layout))
    low = queries
    span = gl.zeros_like(queries) + seqlen_k
    if WINDOW:
        low = gl.maximum(queries - window_left, 0)
        span = gl.maximum(gl.minimum(queries + window_right + 1, seqlen_k) - low, 0)
    total, masked, before, begin, full_begin, full_end = _block_ranges(
        start_q, window_left, window_right, seqlen_q, seqlen_k, WINDOW, BLOCK_M, BLOCK_N
    )
    # the last block is taken by itself, with a mask
    full_end -= (masked == 0).to(gl.int32)
    masked = gl.maximum(masked, 1)
    full = total - masked
    acc = gl.zeros((BLOCK_M, WIDTH), gl.float32, layout)
    row_max = gl.full((BLOCK_M,), -float("inf"), gl.float32, gl.SliceLayout(1, layout))
    row_sum = gl.zeros((BLOCK_M, 2), gl.float32, _halves(BLOCK_M, WARPS))
    start = _first_key(0, full, before, begin, full_begin, full_end, BLOCK_N)
    second = _first_key(1, full, before, begin, full_begin, full_end, BLOCK_N)
    k = _tile(K, stride_kn, start, seqlen_k, offsets_k, keys_k)
    v = _tile(V, stride_vn, start, seqlen_k, offsets_v, keys_v)
    k_tile.store(k)
    scores = _scores(q, k_tile, layout)
    k = _tile(K, stride_kn, second, seqlen_k, offsets_k, keys_k)
    for index in range(full):
        third = _first_key(index + 2, full, before, begin, full_begin, full_end, BLOCK_N)
        acc, row_max, row_sum, scores, k, v = _attend(
            acc, row_max, row_sum, scores, k, v, q, K, V, offsets_k, offsets_v, keys_k, keys_v, k_tile, v_tile,
            stride_kn, stride_vn, start, second, third, seqlen_k, low, span, scale,
            False, WINDOW, layout, dtype,
        )  # fmt: skip
        start = second
        second = third
    if WINDOW:  # others have at most one block with a mask
        for index in range(full, total - 1):
            third = _first_key(index + 2, full, before, begin, full_begin, full_end, BLOCK_N)
            acc, row_max, row_sum, scores, k, v = _attend(
                acc, row_max, row_sum, scores, k, v, q, K, V, offsets_k, offsets_v, keys_k, keys_v, k_tile, v_tile,
                stride_kn, stride_vn, start, second, third, seqlen_k, low, span, scale,
                True, WINDOW, layout, dtype,
            )  # fmt: skip
            start = second
            second = third
    _store_quads(v_tile, v)
    scores = _masked(scores, start, low, span, WINDOW, layout)
    acc, row_max, row_sum = _scaled(acc, scores, row_max, row_sum, scale, layout)
    p, row_sum = _exponentials(scores, row_max, row_sum, scale, True, layout, dtype)
    acc = mfma(p, _load_quads(v_tile, layout), acc)

    row_sum = gl.convert_layout(gl.sum(row_sum, 1), gl.SliceLayout(1, layout))
    row_sum *= _shrinking(dtype)
    empty = row_sum == 0.0
    row_sum = gl.where(empty, 1.0, row_sum)
    out = gl.convert_layout((acc * (1.0 / row_sum)[:, None]).to(dtype), rows_layout)
    pointers = Out + start_q.to(gl.int64) * stride_om + (rows[:, None] * stride_om + columns)
    gl.store(pointers, out, mask=inside)
    if L.to(gl.int64) != 0:  # inference passes no L
        lse = row_max * scale * LN2 + gl.log2(row_sum) * LN2
        # +inf makes exp(score - LSE) zero in the backward pass, which is what a row without keys needs
        lse = gl.where(empty, float("inf"), lse)
        gl.store(L + batch * stride_lz + head * stride_lh + queries * stride_lm, lse, mask=queries < seqlen_q)
