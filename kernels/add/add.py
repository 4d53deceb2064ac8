"""Elementwise addition, one block per program; sums are formed in float32 and rounded once."""

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i] for i < n; grid (blocks)."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    mask = lane < n - start
    left = tl.load(x + start + lane, mask=mask).to(tl.float32)
    right = tl.load(y + start + lane, mask=mask).to(tl.float32)
    tl.store(out + start + lane, (left + right).to(out.dtype.element_ty), mask=mask)
