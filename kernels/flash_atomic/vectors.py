"""The first step of the fused backward pass."""

import triton
import triton.language as tl


@triton.jit
def bwd_start(
    Out, DO, D, stride_oz, stride_oh, stride_om, stride_doz, stride_doh, stride_dom, stride_dz, stride_dh,
    WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """D = rowsum(Out * DO) in float32; grid (query blocks, heads, batch)."""
    start = tl.program_id(0) * ROWS
    head = tl.program_id(1)
    batch = tl.program_id(2)
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, WIDTH)[None, :]
    Out += batch * stride_oz + head * stride_oh + start * stride_om
    DO += batch * stride_doz + head * stride_doh + start * stride_dom
    out = tl.load(Out + (rows[:, None] * stride_om.to(tl.int32) + columns)).to(tl.float32)
    do = tl.load(DO + (rows[:, None] * stride_dom.to(tl.int32) + columns)).to(tl.float32)
    tl.store(D + batch * stride_dz + head * stride_dh + start + rows, tl.sum(out * do, 1))
