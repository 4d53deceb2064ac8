"""Parts of the general kernels: products over any number of columns, and a bias that a call may lack."""

import triton
import triton.language as tl

from .tiles import load_piece


@triton.jit
def any_product(
    A, stride_a, start_a, limit_a, B, stride_b, start_b, limit_b, columns,
    ROWS_A: tl.constexpr, ROWS_B: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """A B^T over all columns of two tiles in memory, STEP at a time; their number is the call's, so the loop is not unrolled."""
    total = tl.zeros((ROWS_A, ROWS_B), tl.float32)
    for at in tl.range(0, columns, STEP, num_stages=1):
        a = load_piece(A, stride_a, start_a, limit_a, at, columns, ROWS_A, STEP, True, False)
        b = load_piece(B, stride_b, start_b, limit_b, at, columns, ROWS_B, STEP, True, False)
        total = tl.dot(a, tl.trans(b), total, input_precision="ieee")
    return total


@triton.jit
def any_bias(
    B, given, stride_m, stride_n, row, column, n_q, n_k, ROWS: tl.constexpr, COLS: tl.constexpr
):  # fmt: skip
    """A tile of the bias in float32; 0 outside of the matrix, and everywhere unless one is `given`."""
    rows = row + tl.arange(0, ROWS)[:, None]
    columns = column + tl.arange(0, COLS)[None, :]
    inside = (rows < n_q) & (columns < n_k) & given
    return tl.load(B + (rows * stride_m + columns * stride_n), mask=inside, other=0.0).to(tl.float32)


@triton.jit
def in_window(first, low, span):
    """Whether each number of `first` - `low` is in [0, span): one comparison, as numbers below 0 become large ones."""
    return (first - low).to(tl.uint32, bitcast=True) < span.to(tl.uint32, bitcast=True)
