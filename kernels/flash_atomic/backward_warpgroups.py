"""Attention backward for wgmma, all gradients in one kernel: a group of four warps copies, two own 64 keys
each.

A step takes a block of 64 queries. Each owner computes the transposed scores S = K Q^T and dP = V dO^T of its
keys, adds P dO to dV and
dS Q to dK in registers, and leaves dS in shared memory. One step later each owner multiplies the dS of both
by its half of the columns
of K, and adds the product to DQ_ACC by atomics: until then the owners need not wait for each other.

DQ_ACC holds the blocks of queries one after another. Inside a block elements are in the order in which an
owner's threads hold them,
so that every thread adds 16 adjacent bytes; `bwd_end` reads them in the same order.
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
OWNED: gl.constexpr = gl.constexpr(64)
"""Keys of an owner: the rows of a wgmma."""
WARPS: gl.constexpr = gl.constexpr(4)
OWNER_REGISTERS: gl.constexpr = gl.constexpr(232)
COPY_REGISTERS: gl.constexpr = gl.constexpr(40)


@gluon.constexpr_function
def _adding(outputs, inputs):
    """Instructions that add an owner's part of a block to memory; nothing in the first step, which has no
    step before it."""
    base, step, values = inputs
    lines = [
        "{ .reg .u32 t; .reg .u64 a; .reg .pred p;",
        f"setp.ne.u32 p, {step[0]}, 0;",
        "mov.u32 t, %tid.x;",
        "and.b32 t, t, 127;",
        f"mad.wide.u32 a, t, 16, {base[0]};",
    ]
    for i in range(0, len(values), 4):
        four = ", ".join(values[i : i + 4])
        lines.append(f"@p red.relaxed.gpu.global.add.v4.f32 [a+{i * 512}], {{{four}}};")
    return "\n".join([*lines, "}"])


@gluon.constexpr_function
def _reading(outputs, inputs):
    """Instructions that read a block in the order in which it was added."""
    (base,) = inputs
    (values,) = outputs
    lines = [
        "{ .reg .u32 t, m; .reg .u64 a;",
        "mov.u32 t, %tid.x;",
        "and.b32 m, t, 127;",
        "shr.u32 t, t, 7;",
        f"mad.wide.u32 a, t, {len(values) * 512}, {base[0]};",
        "mad.wide.u32 a, m, 16, a;",
    ]
    for i in range(0, len(values), 4):
        four = ", ".join(values[i : i + 4])
        lines.append(f"ld.global.v4.f32 {{{four}}}, [a+{i * 512}];")
    return "\n".join([*lines, "}"])


@gluon.jit
def _arrive(barrier):
    """One arrival per warp: `mbarrier.arrive` would make all warps of the group wait for each other first."""
    gl.inline_asm(
        "{ .reg .pred p; .reg .u32 l; bar.warp.sync 0xffffffff; mov.u32 l, %laneid; setp.eq.u32 p, l, 0;"
        " @p mbarrier.arrive.shared::cta.b64 _, [$0]; }",
        ("r",),
        [barrier],
    )


@gluon.jit
def _ranges(start_k, left, right, n_q, n_k, WINDOW: gl.constexpr, ROWS: gl.constexpr, KEYS: gl.constexpr):
    """Blocks of queries: (all, those with a mask, of these before the full ones, first, first full, end of
    full)."""
    end = gl.cdiv(n_q, ROWS)
    first = end * 0
    first_full = first
    end_full = end
    if WINDOW:
        last_k = gl.minimum(start_k + KEYS, n_k) - 1
        end = gl.cdiv(gl.maximum(gl.minimum(last_k + left + 1, n_q), 0), ROWS)
        first = gl.minimum(gl.maximum(start_k - right, 0) // ROWS, end)
        first_full = gl.minimum(gl.cdiv(gl.maximum(last_k - right, 0), ROWS), end)
        end_full = gl.maximum(gl.minimum(start_k + left + 1, n_q), 0) // ROWS
        end_full = gl.maximum(end_full, first_full)
    before = first_full - first
    return end - first, before + end - end_full, before, first, first_full, end_full


@gluon.jit
def _first_query(
    index,
    start_k,
    total,
    masked,
    before,
    first,
    first_full,
    end_full,
    WINDOW: gl.constexpr,
    ROWS: gl.constexpr,
):
    """First query of the block that is taken as number `index`: those with a mask come first."""
    if WINDOW:
        with_mask = gl.where(index < before, first + index, end_full + index - before)
        block = gl.where(index < masked, with_mask, first_full + index - masked)
    else:
        # programs of a head begin at different queries: else all would add to the same block of dQ at once
        block = (index + start_k // ROWS) % total
    return block * ROWS


@gluon.jit
def _fill(tile, base, stride, start, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """Begins to copy rows into a tile."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // COLUMNS, COLUMNS // 8], [4, 1], [1, 0])
    columns = gl.arange(0, COLUMNS, gl.SliceLayout(0, layout))[None, :]
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, layout))[:, None]
    async_copy.async_load(tile, base + start.to(gl.int64) * stride + (rows * stride.to(gl.int32) + columns))


@gluon.jit
def _copied(barrier):
    """Waits for the warp's copies, orders them for the tensor cores and arrives: so the owners need no fence
    of their own."""
    async_copy.commit_group()
    async_copy.wait_group(0)
    fence_async_shared()
    _arrive(barrier)


@gluon.jit
def _copy(
    Q, K, V, DO, L, D, stride_qh, stride_qm, stride_kn, stride_vn, stride_doh, stride_dom, stride_lh, stride_dh,
    start_k, group, n_q, n_k, left, right,
    k_tiles, half_tiles, v_tiles, q_tiles, do_tiles, l_tiles, d_tiles, full, free,
    WINDOW: gl.constexpr, WIDTH: gl.constexpr, ROWS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Fills the tiles of the keys once, those of the queries step by step."""
    rows = gl.arange(0, ROWS, gl.BlockedLayout([1], [32], [4], [0]))
    for member in gl.static_range(2):
        _fill(half_tiles.index(member), K + member * (WIDTH // 2), stride_kn, start_k, 2 * OWNED, WIDTH // 2)
        if WIDTH != 128:
            _fill(k_tiles.index(member), K, stride_kn, start_k + member * OWNED, OWNED, WIDTH)
        _fill(v_tiles.index(member), V, stride_vn, start_k + member * OWNED, OWNED, WIDTH)
    total, masked, before, first, first_full, end_full = _ranges(
        start_k, left, right, n_q, n_k, WINDOW, ROWS, 2 * OWNED
    )
    step = 0
    for _ in range(group):
        for index in range(total):
            start = _first_query(
                index, start_k, total, masked, before, first, first_full, end_full, WINDOW, ROWS
            )
            stage = step % STAGES
            mbarrier.wait(free.index(stage), (step // STAGES & 1) ^ 1)
            _fill(q_tiles.index(stage), Q, stride_qm, start, ROWS, WIDTH)
            async_copy.async_load(l_tiles.index(stage), L + start + rows)
            _fill(do_tiles.index(stage), DO, stride_dom, start, ROWS, WIDTH)
            async_copy.async_load(d_tiles.index(stage), D + start + rows)
            _copied(full.index(stage))
            step += 1
        Q += stride_qh
        DO += stride_doh
        L += stride_lh
        D += stride_dh
    if step == 0:
        # V's tiles are the owners' once they are full
        _copied(full.index(0))


@gluon.jit
def _scores(
    k_tiles, half_tiles, q_tiles, full, step,
    member: gl.constexpr, WIDTH: gl.constexpr, ROWS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Begins K Q^T of an owner's keys."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, ROWS, 16])
    stage = step % STAGES
    mbarrier.wait(full.index(stage), step // STAGES & 1)
    zero = gl.zeros((OWNED, ROWS), gl.float32, layout)
    q_tile = q_tiles.index(stage)
    if WIDTH == 128:
        # a swizzled row is 64 columns, so the halves of K serve here, too
        low = half_tiles.index(0).slice(member * OWNED, OWNED)
        high = half_tiles.index(1).slice(member * OWNED, OWNED)
        found = warpgroup_mma(low, q_tile.slice(0, 64, 1).permute((1, 0)), zero, use_acc=False, is_async=True)
        found = warpgroup_mma(high, q_tile.slice(64, 64, 1).permute((1, 0)), found, is_async=True)
    else:
        k_tile = k_tiles.index(member)
        found = warpgroup_mma(k_tile, q_tile.permute((1, 0)), zero, use_acc=False, is_async=True)
    return found


@gluon.jit
def _queries(
    half_tiles, ds_tiles, ds_full, step, member: gl.constexpr, WIDTH: gl.constexpr, ROWS: gl.constexpr
):
    """Begins the product of the step before with an owner's half of K's columns."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, WIDTH // 2, 16])
    buffer = (step + 1) & 1
    mbarrier.wait(ds_full.index(buffer), ((step + 1) // 2 + 1) & 1)
    zero = gl.zeros((ROWS, WIDTH // 2), gl.float32, layout)
    return warpgroup_mma(
        ds_tiles.index(buffer).permute((1, 0)), half_tiles.index(member), zero, use_acc=False, is_async=True
    )


@gluon.jit
def _step(
    dk, dv, scores, step, last, start, start_k, with_mask, scale, low, span, before_dq,
    k_tiles, half_tiles, v_tiles, q_tiles, do_tiles, l_tiles, d_tiles, ds_tiles, full, free, ds_full, ds_free,
    member: gl.constexpr, WINDOW: gl.constexpr, AHEAD: gl.constexpr,
    WIDTH: gl.constexpr, ROWS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """What a block of queries adds to dK and dV, and the block before it to dQ; `scores` are this step's with
    AHEAD."""
    score_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, ROWS, 16])
    out_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, WIDTH, 16])
    dtype: gl.constexpr = v_tiles.dtype
    stage = step % STAGES
    if not AHEAD:
        scores = _scores(k_tiles, half_tiles, q_tiles, full, step, member, WIDTH, ROWS, STAGES)
    zero = gl.zeros((OWNED, ROWS), gl.float32, score_layout)
    dp = warpgroup_mma(
        v_tiles.index(member), do_tiles.index(stage).permute((1, 0)), zero, use_acc=False, is_async=True
    )
    lse = l_tiles.index(stage).load(gl.SliceLayout(0, score_layout)) * LOG2E
    if not AHEAD:
        scores = warpgroup_mma_wait(1, deps=[scores])
    p = gl.exp2(scores * scale - lse[None, :])
    if WINDOW:  # noqa: SIM102 - decided when it is compiled
        if with_mask:
            # a query sees the keys low + query .. low + query + span - 1
            lows = low + start + gl.arange(0, ROWS, gl.SliceLayout(0, score_layout))
            keys = start_k + gl.arange(0, OWNED, gl.SliceLayout(1, score_layout))
            seen = keys[:, None] - lows[None, :]
            p = gl.where(seen.to(gl.uint32, bitcast=True) < span.to(gl.uint32, bitcast=True), p, 0.0)
    factor = gl.convert_layout(p.to(dtype), gl.DotOperandLayout(0, out_layout, 2))
    delta = d_tiles.index(stage).load(gl.SliceLayout(0, score_layout))
    dp = warpgroup_mma_wait(0, deps=[dp])
    dv = warpgroup_mma(factor, do_tiles.index(stage), dv, is_async=True)
    ds = (p * (dp - delta[None, :])).to(dtype)
    mbarrier.wait(ds_free.index(step & 1), ((step + 1) // 2 + 1) & 1)
    ds_tiles.index(step & 1).slice(member * OWNED, OWNED).store(ds)
    fence_async_shared()
    _arrive(ds_full.index(step & 1))
    dq = _queries(half_tiles, ds_tiles, ds_full, step, member, WIDTH, ROWS)
    factor = gl.convert_layout(ds, gl.DotOperandLayout(0, out_layout, 2))
    dk = warpgroup_mma(factor, q_tiles.index(stage), dk, is_async=True)
    if AHEAD:
        # the last step computes its own scores again
        following = gl.minimum(step + 1, last - 1)
        scores = _scores(k_tiles, half_tiles, q_tiles, full, following, member, WIDTH, ROWS, STAGES)
        dv, dq = warpgroup_mma_wait(2, deps=[dv, dq])
    else:
        dv, dq = warpgroup_mma_wait(1, deps=[dv, dq])
    _arrive(ds_free.index((step + 1) & 1))
    gl.inline_asm(_adding, ("l", "r", "f"), [before_dq, step, dq])
    if AHEAD:
        dk, scores = warpgroup_mma_wait(0, deps=[dk, scores])
    else:
        dk = warpgroup_mma_wait(0, deps=[dk])
        scores = 0
    _arrive(free.index(stage))
    return dk, dv, scores


@gluon.jit
def _own(
    DQ, DK, DV, stride_dqh, stride_dkn, stride_dvn, start_k, group, n_q, n_k, left, right, sm_scale,
    k_tiles, half_tiles, v_tiles, q_tiles, do_tiles, l_tiles, d_tiles, ds_tiles, full, free, ds_full, ds_free,
    member: gl.constexpr, WINDOW: gl.constexpr, AHEAD: gl.constexpr,
    WIDTH: gl.constexpr, ROWS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """dK and dV of the keys start_k + 64 member and the 63 after it, over all query heads that share them."""
    out_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, WIDTH, 16])
    store_layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // WIDTH, WIDTH // 8], [WARPS, 1], [1, 0])
    dk = gl.zeros((OWNED, WIDTH), gl.float32, out_layout)
    dv = gl.zeros((OWNED, WIDTH), gl.float32, out_layout)
    total, masked, before, first, first_full, end_full = _ranges(
        start_k, left, right, n_q, n_k, WINDOW, ROWS, 2 * OWNED
    )
    first_key = start_k + member * OWNED
    low = -left
    span = gl.maximum(left + right + 1, 0)
    scale = sm_scale * LOG2E
    DQ += member * (ROWS * WIDTH // 2)
    before_dq = DQ
    step = 0
    last = total * group
    if last == 0:
        mbarrier.wait(full.index(0), 0)
    scores = 0
    if AHEAD:
        scores = warpgroup_mma_wait(
            0, deps=[_scores(k_tiles, half_tiles, q_tiles, full, step, member, WIDTH, ROWS, STAGES)]
        )
    for _ in range(group):
        for index in range(total):
            start = _first_query(
                index, start_k, total, masked, before, first, first_full, end_full, WINDOW, ROWS
            )
            dk, dv, scores = _step(
                dk, dv, scores, step, last, start, first_key, index < masked, scale, low, span, before_dq,
                k_tiles, half_tiles, v_tiles, q_tiles, do_tiles, l_tiles, d_tiles, ds_tiles,
                full, free, ds_full, ds_free, member, WINDOW, AHEAD, WIDTH, ROWS, STAGES,
            )  # fmt: skip
            before_dq = DQ + start * WIDTH
            step += 1
        DQ += stride_dqh
    dq = _queries(half_tiles, ds_tiles, ds_full, step, member, WIDTH, ROWS)
    dq = warpgroup_mma_wait(0, deps=[dq])
    gl.inline_asm(_adding, ("l", "r", "f"), [before_dq, step, dq])
    # through shared memory: rows are stored 16 bytes per thread
    rows = gl.arange(0, OWNED, gl.SliceLayout(1, store_layout))[:, None]
    columns = gl.arange(0, WIDTH, gl.SliceLayout(0, store_layout))[None, :]
    tile = v_tiles.index(member)
    tile.store(dv.to(tile.dtype))
    pointers = DV + first_key.to(gl.int64) * stride_dvn + (rows * stride_dvn.to(gl.int32) + columns)
    gl.store(pointers, tile.load(store_layout))
    tile.store((dk * sm_scale).to(tile.dtype))
    pointers = DK + first_key.to(gl.int64) * stride_dkn + (rows * stride_dkn.to(gl.int32) + columns)
    gl.store(pointers, tile.load(store_layout))


@gluon.jit
def bwd_sums(
    Q, K, V, DO, DK, DV, L, D, DQ_ACC,
    stride_qz, stride_qh, stride_qm, stride_kz, stride_kh, stride_kn, stride_vz, stride_vh, stride_vn,
    stride_doz, stride_doh, stride_dom, stride_dkz, stride_dkh, stride_dkn, stride_dvz, stride_dvh, stride_dvn,
    stride_lz, stride_lh, stride_dz, stride_dh, stride_dqaz, stride_dqah,
    group, seqlen_q, seqlen_k, window_left, window_right, sm_scale,
    WIDTH: gl.constexpr, WINDOW: gl.constexpr, STAGES: gl.constexpr, AHEAD: gl.constexpr,
    ROWS: gl.constexpr, KEYS: gl.constexpr,
):  # fmt: skip
    """dK, dV, and the sum of dQ before it is scaled; grid (key blocks, key heads, batch)."""
    gl.static_assert(KEYS == 2 * OWNED)
    gl.static_assert(ROWS == 64)
    # two halves of K make two groups of products, and the registers do not suffice
    gl.static_assert(WIDTH == 64 or not AHEAD)
    dtype: gl.constexpr = Q.dtype.element_ty
    head_k = gl.program_id(1)
    batch = gl.program_id(2)
    start_k = gl.program_id(0) * KEYS
    head = head_k * group
    Q += batch * stride_qz + head * stride_qh
    K += batch * stride_kz + head_k * stride_kh
    V += batch * stride_vz + head_k * stride_vh
    DO += batch * stride_doz + head * stride_doh
    DK += batch * stride_dkz + head_k * stride_dkh
    DV += batch * stride_dvz + head_k * stride_dvh
    L += batch * stride_lz + head * stride_lh
    D += batch * stride_dz + head * stride_dh
    DQ_ACC += batch * stride_dqaz + head * stride_dqah
    swizzled: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    halved: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=WIDTH, element_bitwidth=16, rank=2)
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    half_tiles = gl.allocate_shared_memory(dtype, [2, KEYS, WIDTH // 2], halved)
    if WIDTH == 128:  # noqa: SIM108 - decided when it is compiled
        k_tiles = half_tiles
    else:
        k_tiles = gl.allocate_shared_memory(dtype, [2, OWNED, WIDTH], swizzled)
    v_tiles = gl.allocate_shared_memory(dtype, [2, OWNED, WIDTH], swizzled)
    ds_tiles = gl.allocate_shared_memory(dtype, [2, KEYS, ROWS], swizzled)
    q_tiles = gl.allocate_shared_memory(dtype, [STAGES, ROWS, WIDTH], swizzled)
    do_tiles = gl.allocate_shared_memory(dtype, [STAGES, ROWS, WIDTH], swizzled)
    l_tiles = gl.allocate_shared_memory(gl.float32, [STAGES, ROWS], flat)
    d_tiles = gl.allocate_shared_memory(gl.float32, [STAGES, ROWS], flat)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    free = mbarrier.allocate_mbarrier(batch=STAGES)
    ds_full = mbarrier.allocate_mbarrier(batch=2)
    ds_free = mbarrier.allocate_mbarrier(batch=2)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=WARPS)
        mbarrier.init(free.index(stage), count=2 * WARPS)
    for buffer in gl.static_range(2):
        mbarrier.init(ds_full.index(buffer), count=2 * WARPS)
        mbarrier.init(ds_free.index(buffer), count=2 * WARPS)
    fence_async_shared()
    # tuples are written out: one in a variable would make its constants run-time values
    gl.warp_specialize(
        [
            (
                _own,
                (
                    DQ_ACC, DK, DV, stride_dqah, stride_dkn, stride_dvn, start_k, group, seqlen_q, seqlen_k,
                    window_left, window_right, sm_scale,
                    k_tiles, half_tiles, v_tiles, q_tiles, do_tiles, l_tiles, d_tiles, ds_tiles,
                    full, free, ds_full, ds_free,
                    0, WINDOW, AHEAD, WIDTH, ROWS, STAGES,
                ),
            ),
            (
                _own,
                (
                    DQ_ACC, DK, DV, stride_dqah, stride_dkn, stride_dvn, start_k, group, seqlen_q, seqlen_k,
                    window_left, window_right, sm_scale,
                    k_tiles, half_tiles, v_tiles, q_tiles, do_tiles, l_tiles, d_tiles, ds_tiles,
                    full, free, ds_full, ds_free,
                    1, WINDOW, AHEAD, WIDTH, ROWS, STAGES,
                ),
            ),
            (
                _copy,
                (
                    Q, K, V, DO, L, D, stride_qh, stride_qm, stride_kn, stride_vn, stride_doh, stride_dom,
                    stride_lh, stride_dh, start_k, group, seqlen_q, seqlen_k, window_left, window_right,
                    k_tiles, half_tiles, v_tiles, q_tiles, do_tiles, l_tiles, d_tiles, full, free,
                    WINDOW, WIDTH, ROWS, STAGES,
                ),
            ),
        ],
        [4, 4],
        [OWNER_REGISTERS, COPY_REGISTERS],
    )  # fmt: skip


@gluon.jit
def bwd_end(
    DQ_ACC, DQ, stride_dqaz, stride_dqah, stride_dqz, stride_dqh, stride_dqm, sm_scale,
    WIDTH: gl.constexpr, ROWS: gl.constexpr,
):  # fmt: skip
    """DQ from the sums of `bwd_sums`; grid (query blocks, heads, batch). Its eight warps are in the places of
    the two owners."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 2], [16, WIDTH // 2, 16])
    store_layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // WIDTH, WIDTH // 8], [8, 1], [1, 0])
    start = gl.program_id(0) * ROWS
    head = gl.program_id(1)
    batch = gl.program_id(2)
    DQ_ACC += batch * stride_dqaz + head * stride_dqah + start * WIDTH
    DQ += batch * stride_dqz + head * stride_dqh + start.to(gl.int64) * stride_dqm
    kind: gl.constexpr = gl.distributed_type(gl.float32, [ROWS, WIDTH], layout)
    dq = gl.inline_asm(_reading, ("=f", "l"), [DQ_ACC], kind)
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, store_layout))[:, None]
    columns = gl.arange(0, WIDTH, gl.SliceLayout(0, store_layout))[None, :]
    dq = gl.convert_layout((dq * sm_scale).to(DQ.dtype.element_ty), store_layout)
    gl.store(DQ + (rows * stride_dqm.to(gl.int32) + columns), dq)
