"""RMSNorm of rows of contiguous elements, computed in float32 and rounded once."""

import triton
import triton.language as tl

from ..batch import batch_offset


@triton.jit
def rms_norm_rows(
    input, weight, out, n, columns, eps, size_0, size_1, size_2,
    stride_input_0, stride_input_1, stride_input_2, stride_input_3,
    stride_out_0, stride_out_1, stride_out_2, stride_out_3,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, LOOP: tl.constexpr,
):  # fmt: skip
    """out = input / sqrt(mean(input^2) + eps) * weight for n rows; grid (blocks of ROWS rows).

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
        squares = tl.zeros([ROWS, BLOCK], tl.float32)
        for start in range(0, columns, BLOCK):
            column = (start + lane)[None, :]
            value = tl.load(of_input + column, mask=inside & (column < columns), other=0.0).to(tl.float32)
            squares += value * value
        scale = tl.rsqrt(tl.sum(squares, 1) / columns + eps)[:, None]
        # from the end: what was read last is in a cache
        last = (columns - 1) // BLOCK * BLOCK
        for start in range(0, columns, BLOCK):
            column = (last - start + lane)[None, :]
            mask = inside & (column < columns)
            value = tl.load(of_input + column, mask=mask).to(tl.float32)
            factor = tl.load(weight + column, mask=column < columns).to(tl.float32)
            tl.store(of_out + column, (value * scale * factor).to(out.dtype.element_ty), mask=mask)
    else:
        column = lane[None, :]
        mask = inside & (column < columns)
        factor = tl.load(weight + column, mask=column < columns).to(tl.float32)
        value = tl.load(of_input + column, mask=mask, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(value * value, 1) / columns + eps)[:, None]
        tl.store(of_out + column, (value * scale * factor).to(out.dtype.element_ty), mask=mask)
