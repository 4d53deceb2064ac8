# mypy: ignore-errors
"""A kernel that a new worker compiles before its first job; its result is thrown away."""

import triton
import triton.language as tl


@triton.jit
def warm_up(x, n, BLOCK: tl.constexpr):  # noqa: ANN001, ANN201
    """Double the elements of x below n."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)
