"""Functions that kernels of several families share."""

import triton
import triton.language as tl


@triton.jit
def batch_offset(index, size_0, size_1, size_2, stride_0, stride_1, stride_2, stride_3):
    """Offset of a batch element by its index: four batch axes, the innermost first (`rules.batch_values`)."""
    first = index // size_0
    second = first // size_1
    third = second // size_2
    at_0 = (index - first * size_0).to(tl.int64)
    at_1 = (first - second * size_1).to(tl.int64)
    at_2 = (second - third * size_2).to(tl.int64)
    return at_0 * stride_0 + at_1 * stride_1 + at_2 * stride_2 + third.to(tl.int64) * stride_3
