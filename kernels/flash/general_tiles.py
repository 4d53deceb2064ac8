"""Parts of the general kernels: products over any number of columns, and a bias that a call may lack."""

import triton
import triton.language as tl

from .tiles import piece_count, piece_size, piece_start

NEAR: tl.constexpr = tl.constexpr(2**22 - 1)
"""Elements between rows at most for offsets in a tile that a buffer instruction takes: those of 64 rows of float32 are below 2^31 bytes."""


@triton.jit
def any_wide(A, stride_z, stride_h, stride_m, columns):
    """Whether every row of a matrix begins at a multiple of 16 bytes, has a multiple of 16 bytes, and is near
    the next one."""
    SIZE: tl.constexpr = A.dtype.element_ty.primitive_bitwidth // 8
    aligned = ((A.to(tl.int64) | (stride_z | stride_h | stride_m | columns) * SIZE) & 15) == 0
    return aligned & (stride_m >= 0) & (stride_m <= NEAR)


@triton.jit
def any_tile(base, stride, start, limit, first, columns, wide, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Rows start .. start+ROWS-1, columns first .. first+COLS-1; zero from row `limit` and column `columns`
    on, of which there are some.

    `wide`: 16 bytes are loaded at once, by instructions that read nothing outside without a branch.
    """
    AT_ONCE: tl.constexpr = 128 // base.dtype.element_ty.primitive_bitwidth
    row = tl.arange(0, ROWS)
    column = tl.arange(0, COLS)
    if wide:
        # masking and rounding change nothing: the compiler learns from them what `wide` means
        step = (stride.to(tl.int32) & NEAR) // AT_ONCE * AT_ONCE
        inside = (row < limit - start)[:, None] & (column < (columns - first) // AT_ONCE * AT_ONCE)[None, :]
        begin = tl.multiple_of(base + (start * stride + first), 16)
        tile = tl.load(begin + (row[:, None] * step + column[None, :]), mask=inside, other=0.0)
    else:
        # another element is read instead of what is outside: that takes no branch
        near = tl.minimum(start + row, limit - 1).to(tl.int64)[:, None] * stride
        tile = tl.load(base + (near + tl.minimum(first + column, columns - 1)[None, :]))
        inside = (start + row < limit)[:, None] & (first + column < columns)[None, :]
        tile = tl.where(inside, tile, 0.0)
    return tile


@triton.jit
def any_products(
    sums, a, base, stride, start, limit, columns, wide,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, PIECE: tl.constexpr, APART: tl.constexpr = False,
):  # fmt: skip
    """sums + a B for a tile B of WIDTH columns in memory, read piece by piece. APART: as in add_products."""
    added = ()
    for i in tl.static_range(piece_count(WIDTH, PIECE)):
        b = any_tile(
            base,
            stride,
            start,
            limit,
            piece_start(WIDTH, PIECE, i),
            columns,
            wide,
            ROWS,
            piece_size(WIDTH, PIECE, i),
        )
        if APART:
            # fma: the compiler makes one sum of a dot and an addition
            block = tl.dot(a, b, input_precision="ieee")
            added += (tl.fma(block, tl.full(block.shape, 1.0, tl.float32), sums[i]),)
        else:
            added += (tl.dot(a, b, sums[i], input_precision="ieee"),)
    return added


@triton.jit
def any_product(
    A, stride_a, start_a, limit_a, B, stride_b, start_b, limit_b, columns, wide,
    ROWS_A: tl.constexpr, ROWS_B: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """A B^T over all columns of two tiles in memory, STEP at a time; their number is the call's, so the loop
    is not unrolled."""
    total = tl.zeros((ROWS_A, ROWS_B), tl.float32)
    for at in tl.range(0, columns, STEP, num_stages=1):
        a = any_tile(A, stride_a, start_a, limit_a, at, columns, wide, ROWS_A, STEP)
        b = any_tile(B, stride_b, start_b, limit_b, at, columns, wide, ROWS_B, STEP)
        total = tl.dot(a, tl.trans(b), total, input_precision="ieee")
    return total


@triton.jit
def any_bias(B, stride_m, stride_n, row, column, n_q, n_k, ROWS: tl.constexpr, COLS: tl.constexpr):
    """A tile of the bias in float32; outside of the matrix another element of it."""
    rows = tl.minimum(row + tl.arange(0, ROWS), n_q - 1)[:, None]
    columns = tl.minimum(column + tl.arange(0, COLS), n_k - 1)[None, :]
    return tl.load(B + (rows * stride_m + columns * stride_n)).to(tl.float32)


@triton.jit
def in_window(first, low, span):
    """Whether each number of `first` - `low` is in [0, span): one comparison, as numbers below 0 become large
    ones."""
    return (first - low).to(tl.uint32, bitcast=True) < span.to(tl.uint32, bitcast=True)
