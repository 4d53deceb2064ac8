"""out = input + alpha * other in three forms: contiguous tensors, tiles of two axes, any strides.

Floats are computed in float32, fp64 in itself, and rounded once to the output's type; integers wrap around.
"""

import triton
import triton.language as tl


@triton.jit
def scaled_sum(left, right, alpha):
    """left + alpha * right. `alpha` is an i64: an integer, or for floats the bits of a double."""
    dtype: tl.constexpr = left.dtype
    if dtype.is_floating():
        wide: tl.constexpr = tl.float64 if dtype == tl.float64 else tl.float32
        factor = alpha.to(tl.float64, bitcast=True).to(wide)
        return (left.to(wide) + factor * right.to(wide)).to(dtype)
    return left + alpha.to(dtype) * right


@triton.jit
def add_dense(input, other, out, alpha, n, BLOCK: tl.constexpr):
    """Contiguous tensors of n elements; grid (blocks)."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    mask = lane < n - start
    left = tl.load(input + start + lane, mask=mask)
    right = tl.load(other + start + lane, mask=mask)
    tl.store(out + start + lane, scaled_sum(left, right, alpha), mask=mask)


@triton.jit
def load_tile(base, row, column, stride_1, stride_0, mask):
    """base[row * stride_1 + column * stride_0]: along rows or columns by vectors where strides and hints
    allow it."""
    if (stride_0 == 1) & (stride_1 % 8 == 0):
        value = tl.load(base + row * (stride_1 // 8 * 8) + column, mask=mask)
    elif (stride_1 == 1) & (stride_0 % 8 == 0):
        value = tl.load(base + row + column * (stride_0 // 8 * 8), mask=mask)
    else:
        value = tl.load(base + row * stride_1 + column * stride_0, mask=mask)
    return value


@triton.jit
def add_tiles(
    input, other, out, alpha,
    size_0, size_1, size_2,
    stride_input_0, stride_input_1, stride_input_2, stride_input_3,
    stride_other_0, stride_other_1, stride_other_2, stride_other_3,
    stride_out_0, stride_out_1, stride_out_2, stride_out_3,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Tiles of axes 1 and 0 of four axes; grid (tiles of axis 0 * tiles of axis 1 * size_2 * size_3)."""
    program = tl.program_id(0)
    across = tl.cdiv(size_0, COLUMNS)
    rest = program // across
    column = ((program - rest * across) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    down = tl.cdiv(size_1, ROWS)
    outer = rest // down
    row = ((rest - outer * down) * ROWS + tl.arange(0, ROWS))[:, None]
    third = outer // size_2
    at_2 = (outer - third * size_2).to(tl.int64)
    at_3 = third.to(tl.int64)
    mask = (row < size_1) & (column < size_0)
    row = row.to(tl.int64)
    column = column.to(tl.int64)
    of_input = input + (at_2 * stride_input_2 + at_3 * stride_input_3)
    of_other = other + (at_2 * stride_other_2 + at_3 * stride_other_3)
    of_out = out + (at_2 * stride_out_2 + at_3 * stride_out_3)
    left = load_tile(of_input, row, column, stride_input_1, stride_input_0, mask)
    right = load_tile(of_other, row, column, stride_other_1, stride_other_0, mask)
    value = scaled_sum(left, right, alpha)
    if (stride_out_0 == 1) & (stride_out_1 % 8 == 0):
        tl.store(of_out + row * (stride_out_1 // 8 * 8) + column, value, mask=mask)
    else:
        tl.store(of_out + row * stride_out_1 + column * stride_out_0, value, mask=mask)


@triton.jit
def add_strided(
    input, other, out, alpha, n,
    size_0, size_1, size_2, size_3, size_4, size_5, size_6,
    stride_input_0, stride_input_1, stride_input_2, stride_input_3,
    stride_input_4, stride_input_5, stride_input_6, stride_input_7,
    stride_other_0, stride_other_1, stride_other_2, stride_other_3,
    stride_other_4, stride_other_5, stride_other_6, stride_other_7,
    stride_out_0, stride_out_1, stride_out_2, stride_out_3,
    stride_out_4, stride_out_5, stride_out_6, stride_out_7,
    RANK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """n elements (less than 2^31 - BLOCK) of tensors with RANK axes; grid (blocks)."""
    # unsigned: division needs no correction of signs
    index = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.uint32)
    mask = index < n.to(tl.uint32)
    sizes = (size_0, size_1, size_2, size_3, size_4, size_5, size_6)
    of_input = (
        stride_input_0, stride_input_1, stride_input_2, stride_input_3,
        stride_input_4, stride_input_5, stride_input_6, stride_input_7,
    )  # fmt: skip
    of_other = (
        stride_other_0, stride_other_1, stride_other_2, stride_other_3,
        stride_other_4, stride_other_5, stride_other_6, stride_other_7,
    )  # fmt: skip
    of_out = (
        stride_out_0, stride_out_1, stride_out_2, stride_out_3,
        stride_out_4, stride_out_5, stride_out_6, stride_out_7,
    )  # fmt: skip
    at_input = tl.zeros([BLOCK], tl.int64)
    at_other = tl.zeros([BLOCK], tl.int64)
    at_out = tl.zeros([BLOCK], tl.int64)
    for axis in tl.static_range(RANK - 1):
        rest = index // sizes[axis].to(tl.uint32)
        at = (index - rest * sizes[axis].to(tl.uint32)).to(tl.int64)
        at_input += at * of_input[axis]
        at_other += at * of_other[axis]
        at_out += at * of_out[axis]
        index = rest
    at = index.to(tl.int64)
    left = tl.load(input + at_input + at * of_input[RANK - 1], mask=mask)
    right = tl.load(other + at_other + at * of_other[RANK - 1], mask=mask)
    tl.store(out + at_out + at * of_out[RANK - 1], scaled_sum(left, right, alpha), mask=mask)
