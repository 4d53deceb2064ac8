"""Softmax of rows of contiguous elements, and along any axis; computed in float32 and rounded once."""

import triton
import triton.language as tl

from ..batch import batch_offset


@triton.jit
def shifted_exp(value, top):
    """exp(value - top), 0 where both are -inf."""
    return tl.exp(value - tl.where(top == float("-inf"), 0.0, top))


@triton.jit
def softmax_rows(
    input, out, n, columns, size_0, size_1, size_2,
    stride_input_0, stride_input_1, stride_input_2, stride_input_3,
    stride_out_0, stride_out_1, stride_out_2, stride_out_3,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, LOOP: tl.constexpr,
):  # fmt: skip
    """out = exp(input - max) / sum(exp(input - max)) for n rows; grid (blocks of ROWS rows).

    Rows are of at most BLOCK columns; with LOOP of any number, and read twice.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lane = tl.arange(0, BLOCK)
    of_input = input + batch_offset(
        row, size_0, size_1, size_2, stride_input_0, stride_input_1, stride_input_2, stride_input_3
    )[:, None]  # fmt: skip
    of_out = out + batch_offset(
        row, size_0, size_1, size_2, stride_out_0, stride_out_1, stride_out_2, stride_out_3
    )[:, None]  # fmt: skip
    inside = (row < n)[:, None]
    if LOOP:
        # the maximum and the sum of each lane's own columns
        most = tl.full([ROWS, BLOCK], float("-inf"), tl.float32)
        total = tl.zeros([ROWS, BLOCK], tl.float32)
        for start in range(0, columns, BLOCK):
            column = (start + lane)[None, :]
            mask = inside & (column < columns)
            value = tl.load(of_input + column, mask=mask, other=float("-inf")).to(tl.float32)
            top = tl.maximum(most, value)
            total = total * shifted_exp(most, top) + shifted_exp(value, top)
            most = top
        top = tl.max(most, 1)[:, None]
        scale = 1.0 / tl.sum(total * shifted_exp(most, top), 1)[:, None]
        # from the end: what was read last is in a cache
        last = (columns - 1) // BLOCK * BLOCK
        for start in range(0, columns, BLOCK):
            column = (last - start + lane)[None, :]
            mask = inside & (column < columns)
            value = tl.load(of_input + column, mask=mask).to(tl.float32)
            tl.store(of_out + column, (tl.exp(value - top) * scale).to(out.dtype.element_ty), mask=mask)
    else:
        column = lane[None, :]
        mask = inside & (column < columns)
        value = tl.load(of_input + column, mask=mask, other=float("-inf")).to(tl.float32)
        power = shifted_exp(value, tl.max(value, 1)[:, None])
        scale = 1.0 / tl.sum(power, 1)[:, None]
        tl.store(of_out + column, (power * scale).to(out.dtype.element_ty), mask=mask)


@triton.jit
def load_block(base, column, row, stride, stride_0, mask, other):
    """base[column * stride + row * stride_0]: by vectors where rows are adjacent and hints allow it."""
    if (stride_0 == 1) & (stride % 8 == 0):
        value = tl.load(base + column * (stride // 8 * 8) + row, mask=mask, other=other)
    else:
        value = tl.load(base + column * stride + row * stride_0, mask=mask, other=other)
    return value


@triton.jit
def softmax_columns(
    input, out, columns, size_0, size_1, size_2, stride_input_columns, stride_out_columns,
    stride_input_0, stride_input_1, stride_input_2, stride_input_3,
    stride_out_0, stride_out_1, stride_out_2, stride_out_3,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The same for columns of any stride, of ROWS batch elements along axis 0; grid (blocks of axis 0 * the
    other axes)."""
    program = tl.program_id(0)
    blocks = tl.cdiv(size_0, ROWS)
    rest = program // blocks
    row = ((program - rest * blocks) * ROWS + tl.arange(0, ROWS))[None, :]
    second = rest // size_1
    at_1 = (rest - second * size_1).to(tl.int64)
    third = second // size_2
    at_2 = (second - third * size_2).to(tl.int64)
    at_3 = third.to(tl.int64)
    inside = row < size_0
    row = row.to(tl.int64)
    lane = tl.arange(0, BLOCK)
    of_input = input + (at_1 * stride_input_1 + at_2 * stride_input_2 + at_3 * stride_input_3)
    of_out = out + (at_1 * stride_out_1 + at_2 * stride_out_2 + at_3 * stride_out_3)
    most = tl.full([BLOCK, ROWS], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK, ROWS], tl.float32)
    for start in range(0, columns, BLOCK):
        column = (start + lane)[:, None]
        mask = inside & (column < columns)
        value = load_block(
            of_input, column.to(tl.int64), row, stride_input_columns, stride_input_0, mask, float("-inf")
        ).to(tl.float32)
        top = tl.maximum(most, value)
        total = total * shifted_exp(most, top) + shifted_exp(value, top)
        most = top
    top = tl.max(most, 0)[None, :]
    scale = 1.0 / tl.sum(total * shifted_exp(most, top), 0)[None, :]
    last = (columns - 1) // BLOCK * BLOCK
    for start in range(0, columns, BLOCK):
        column = (last - start + lane)[:, None]
        mask = inside & (column < columns)
        wide = column.to(tl.int64)
        value = load_block(of_input, wide, row, stride_input_columns, stride_input_0, mask, float("-inf")).to(
            tl.float32
        )
        power = (tl.exp(value - top) * scale).to(out.dtype.element_ty)
        if (stride_out_0 == 1) & (stride_out_columns % 8 == 0):
            tl.store(of_out + wide * (stride_out_columns // 8 * 8) + row, power, mask=mask)
        else:
            tl.store(of_out + wide * stride_out_columns + row * stride_out_0, power, mask=mask)
