"""Matrix product with bias and activation, accumulated in float32 (of fp32 in full precision) and rounded
once."""

import triton
import triton.language as tl

from ..batch import batch_offset


@triton.jit
def activate(value, activation):
    """By its place in `rules.ACTIVATIONS`: none, relu, gelu (with erf), silu. Not-a-number stays
    not-a-number."""
    if activation == 1:
        value = tl.where(value < 0.0, 0.0, value)
    elif activation == 2:
        value = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
    elif activation == 3:
        value = value / (1.0 + tl.exp(-value))
    return value


@triton.jit
def store_tile(
    total, bias, out, has_bias, activation, row, column, rows, columns,
    stride_bias_columns, stride_out_rows, stride_out_columns,
):  # fmt: skip
    """out = activation(total + bias)."""
    if has_bias != 0:
        added = tl.load(bias + column * stride_bias_columns, mask=column < columns, other=0.0)
        total += added.to(tl.float32)[None, :]
    result = activate(total, activation).to(out.dtype.element_ty)
    target = out + row[:, None] * stride_out_rows + column[None, :] * stride_out_columns
    tl.store(target, result, mask=(row < rows)[:, None] & (column < columns)[None, :])


@triton.jit
def gemm_tile(
    input, weight, bias, out, has_bias, activation, tile, rows, columns, inner,
    stride_input_rows, stride_input_inner, stride_weight_inner, stride_weight_columns,
    stride_bias_columns, stride_out_rows, stride_out_columns,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    EVEN: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    """One tile of one matrix: GROUP rows of tiles share what they read.

    EVEN: `inner` is a multiple of BLOCK_K. HALVES: the activation has half of the tile's columns in registers
    at once.
    """
    down = tl.cdiv(rows, BLOCK_M)
    across = tl.cdiv(columns, BLOCK_N)
    group = tile // (GROUP * across)
    height = tl.minimum(down - group * GROUP, GROUP)
    within = tile - group * (GROUP * across)
    column_tile = within // height
    row_tile = group * GROUP + (within - column_tile * height)
    row = row_tile.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = column_tile.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    lane = tl.arange(0, BLOCK_K)
    # rows and columns beyond the last are others again, so that the loop needs no masks for them; a remainder
    # keeps vectors of columns
    left = input + tl.minimum(row, rows - 1)[:, None] * stride_input_rows + lane[None, :] * stride_input_inner
    right = weight + lane[:, None] * stride_weight_inner + (column % columns)[None, :] * stride_weight_columns
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    # no sum that exceeds 32 bits
    for block in range(0, inner // BLOCK_K + (inner % BLOCK_K != 0).to(tl.int32)):
        if EVEN:
            a = tl.load(left)
            b = tl.load(right)
        else:
            inside = lane < inner - block * BLOCK_K
            a = tl.load(left, mask=inside[None, :], other=0.0)
            b = tl.load(right, mask=inside[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
        left += BLOCK_K * stride_input_inner
        right += BLOCK_K * stride_weight_inner
    if HALVES:
        left_half, right_half = tl.split(tl.permute(tl.reshape(total, [BLOCK_M, 2, BLOCK_N // 2]), [0, 2, 1]))
        column = column_tile.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N // 2)
        store_tile(
            left_half, bias, out, has_bias, activation, row, column, rows, columns,
            stride_bias_columns, stride_out_rows, stride_out_columns,
        )  # fmt: skip
        store_tile(
            right_half, bias, out, has_bias, activation, row, column + BLOCK_N // 2, rows, columns,
            stride_bias_columns, stride_out_rows, stride_out_columns,
        )  # fmt: skip
    else:
        store_tile(
            total, bias, out, has_bias, activation, row, column, rows, columns,
            stride_bias_columns, stride_out_rows, stride_out_columns,
        )  # fmt: skip


@triton.jit
def gemm_nn(
    input, weight, bias, out, has_bias, activation, rows, columns, inner,
    stride_input_rows, stride_weight_inner, stride_out_rows,
    size_0, size_1, size_2, stride_input_0, stride_input_1, stride_input_2, stride_input_3,
    stride_weight_0, stride_weight_1, stride_weight_2, stride_weight_3,
    stride_bias_0, stride_bias_1, stride_bias_2, stride_bias_3,
    stride_out_0, stride_out_1, stride_out_2, stride_out_3,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    EVEN: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    """Contiguous rows of all matrices; grid (tiles of a matrix * matrices)."""
    tiles = tl.cdiv(rows, BLOCK_M) * tl.cdiv(columns, BLOCK_N)
    batch = tl.program_id(0) // tiles
    gemm_tile(
        input + batch_offset(batch, size_0, size_1, size_2, stride_input_0, stride_input_1, stride_input_2, stride_input_3),
        weight + batch_offset(batch, size_0, size_1, size_2, stride_weight_0, stride_weight_1, stride_weight_2, stride_weight_3),
        bias + batch_offset(batch, size_0, size_1, size_2, stride_bias_0, stride_bias_1, stride_bias_2, stride_bias_3),
        out + batch_offset(batch, size_0, size_1, size_2, stride_out_0, stride_out_1, stride_out_2, stride_out_3),
        has_bias, activation, tl.program_id(0) - batch * tiles, rows, columns, inner,
        stride_input_rows, 1, stride_weight_inner, 1, 1, stride_out_rows, 1,
        BLOCK_M, BLOCK_N, BLOCK_K, GROUP, EVEN, HALVES,
    )  # fmt: skip


@triton.jit
def gemm_nt(
    input, weight, bias, out, has_bias, activation, rows, columns, inner,
    stride_input_rows, stride_weight_columns, stride_out_rows,
    size_0, size_1, size_2, stride_input_0, stride_input_1, stride_input_2, stride_input_3,
    stride_weight_0, stride_weight_1, stride_weight_2, stride_weight_3,
    stride_bias_0, stride_bias_1, stride_bias_2, stride_bias_3,
    stride_out_0, stride_out_1, stride_out_2, stride_out_3,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    EVEN: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    """Contiguous columns of the weight, contiguous rows of the others; grid (tiles of a matrix *
    matrices)."""
    tiles = tl.cdiv(rows, BLOCK_M) * tl.cdiv(columns, BLOCK_N)
    batch = tl.program_id(0) // tiles
    gemm_tile(
        input + batch_offset(batch, size_0, size_1, size_2, stride_input_0, stride_input_1, stride_input_2, stride_input_3),
        weight + batch_offset(batch, size_0, size_1, size_2, stride_weight_0, stride_weight_1, stride_weight_2, stride_weight_3),
        bias + batch_offset(batch, size_0, size_1, size_2, stride_bias_0, stride_bias_1, stride_bias_2, stride_bias_3),
        out + batch_offset(batch, size_0, size_1, size_2, stride_out_0, stride_out_1, stride_out_2, stride_out_3),
        has_bias, activation, tl.program_id(0) - batch * tiles, rows, columns, inner,
        stride_input_rows, 1, 1, stride_weight_columns, 1, stride_out_rows, 1,
        BLOCK_M, BLOCK_N, BLOCK_K, GROUP, EVEN, HALVES,
    )  # fmt: skip


@triton.jit
def gemm_strided(
    input, weight, bias, out, has_bias, activation, rows, columns, inner,
    stride_input_rows, stride_input_inner, stride_weight_inner, stride_weight_columns,
    stride_bias_columns, stride_out_rows, stride_out_columns,
    size_0, size_1, size_2, stride_input_0, stride_input_1, stride_input_2, stride_input_3,
    stride_weight_0, stride_weight_1, stride_weight_2, stride_weight_3,
    stride_bias_0, stride_bias_1, stride_bias_2, stride_bias_3,
    stride_out_0, stride_out_1, stride_out_2, stride_out_3,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    EVEN: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    """Any strides; grid (tiles of a matrix * matrices)."""
    tiles = tl.cdiv(rows, BLOCK_M) * tl.cdiv(columns, BLOCK_N)
    batch = tl.program_id(0) // tiles
    gemm_tile(
        input + batch_offset(batch, size_0, size_1, size_2, stride_input_0, stride_input_1, stride_input_2, stride_input_3),
        weight + batch_offset(batch, size_0, size_1, size_2, stride_weight_0, stride_weight_1, stride_weight_2, stride_weight_3),
        bias + batch_offset(batch, size_0, size_1, size_2, stride_bias_0, stride_bias_1, stride_bias_2, stride_bias_3),
        out + batch_offset(batch, size_0, size_1, size_2, stride_out_0, stride_out_1, stride_out_2, stride_out_3),
        has_bias, activation, tl.program_id(0) - batch * tiles, rows, columns, inner,
        stride_input_rows, stride_input_inner, stride_weight_inner, stride_weight_columns,
        stride_bias_columns, stride_out_rows, stride_out_columns,
        BLOCK_M, BLOCK_N, BLOCK_K, GROUP, EVEN, HALVES,
    )  # fmt: skip
