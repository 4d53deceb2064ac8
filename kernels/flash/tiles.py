"""Tiles whose width need not be a power of two: walked in column pieces, which are powers of two of at most
PIECE columns.

A tile in registers is a tuple of its pieces, so that a product over all columns is one dot per piece. With
EXACT every piece is
complete; otherwise columns at or beyond `columns` are zero and never read or written.
"""

import triton
import triton.language as tl


@triton.constexpr_function
def pieces_of(width, piece):
    """(first column, columns) of each piece, the widest first."""
    found, start = [], 0
    while start < width:
        size = piece
        while size > width - start:
            size //= 2
        found.append((start, size))
        start += size
    return found


@triton.constexpr_function
def piece_count(width, piece):
    """Number of pieces."""
    return len(pieces_of(width, piece))


@triton.constexpr_function
def piece_start(width, piece, index):
    """First column of a piece."""
    return pieces_of(width, piece)[index][0]


@triton.constexpr_function
def piece_size(width, piece, index):
    """Columns of a piece."""
    return pieces_of(width, piece)[index][1]


@triton.jit
def load_piece(
    base, stride, start, limit, first, columns, ROWS: tl.constexpr, COLS: tl.constexpr,
    MASKED: tl.constexpr, EXACT: tl.constexpr, REPEAT: tl.constexpr = False,
):  # fmt: skip
    """Rows start .. start+ROWS-1, columns first .. first+COLS-1. MASKED: of rows from `limit` on nothing is
    read; they are zero,
    or with REPEAT and EXACT, where `start` is below `limit`, the last row again: that costs no branch.
    """
    row = tl.arange(0, ROWS)
    column = first + tl.arange(0, COLS)
    if REPEAT and EXACT:
        row = tl.minimum(row, limit - 1 - start)
    pointers = base + start * stride + (row[:, None] * stride + column[None, :])
    if EXACT and (REPEAT or not MASKED):
        return tl.load(pointers)
    if EXACT:
        return tl.load(pointers, mask=(start + row)[:, None] < limit, other=0.0)
    if MASKED:
        inside = ((start + row)[:, None] < limit) & (column[None, :] < columns)
        return tl.load(pointers, mask=inside, other=0.0)
    return tl.load(pointers, mask=(column < columns)[None, :], other=0.0)


@triton.jit
def load_pieces(
    base, stride, start, limit, columns, ROWS: tl.constexpr, WIDTH: tl.constexpr, PIECE: tl.constexpr,
    MASKED: tl.constexpr, EXACT: tl.constexpr, REPEAT: tl.constexpr = False,
):  # fmt: skip
    """A tile of WIDTH columns as a tuple of its pieces."""
    pieces = ()
    for i in tl.static_range(piece_count(WIDTH, PIECE)):
        tile = load_piece(
            base, stride, start, limit, piece_start(WIDTH, PIECE, i), columns,
            ROWS, piece_size(WIDTH, PIECE, i), MASKED, EXACT, REPEAT,
        )  # fmt: skip
        pieces += (tile,)
    return pieces


@triton.jit
def store_pieces(
    base, stride, start, limit, first, columns, pieces, factor,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, PIECE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Write `pieces` times `factor` in the matrix's own type, from column `first` on; rows from `limit` on
    are not written."""
    row = tl.arange(0, ROWS)
    for i in tl.static_range(piece_count(WIDTH, PIECE)):
        column = first + piece_start(WIDTH, PIECE, i) + tl.arange(0, piece_size(WIDTH, PIECE, i))
        pointers = base + start * stride + (row[:, None] * stride + column[None, :])
        inside = (start + row)[:, None] < limit
        if not EXACT:
            inside = inside & (column[None, :] < columns)
        tl.store(pointers, (pieces[i] * factor).to(base.dtype.element_ty), mask=inside)


@triton.jit
def gather_pieces(base, offsets, inside, WIDTH: tl.constexpr, PIECE: tl.constexpr):
    """A tile of complete rows that begin at `offsets`, as a tuple of its pieces; rows not `inside` are
    zero."""
    pieces = ()
    for i in tl.static_range(piece_count(WIDTH, PIECE)):
        column = piece_start(WIDTH, PIECE, i) + tl.arange(0, piece_size(WIDTH, PIECE, i))
        pointers = base + (offsets[:, None] + column[None, :])
        pieces += (tl.load(pointers, mask=inside[:, None], other=0.0),)
    return pieces


@triton.jit
def scatter_pieces(base, offsets, inside, pieces, factor, WIDTH: tl.constexpr, PIECE: tl.constexpr):
    """Write `pieces` times `factor` to complete rows that begin at `offsets`, those `inside`."""
    for i in tl.static_range(piece_count(WIDTH, PIECE)):
        column = piece_start(WIDTH, PIECE, i) + tl.arange(0, piece_size(WIDTH, PIECE, i))
        pointers = base + (offsets[:, None] + column[None, :])
        tl.store(pointers, (pieces[i] * factor).to(base.dtype.element_ty), mask=inside[:, None])


@triton.jit
def zero_pieces(ROWS: tl.constexpr, WIDTH: tl.constexpr, PIECE: tl.constexpr):
    """Sums that are not yet begun, in float32."""
    pieces = ()
    for i in tl.static_range(piece_count(WIDTH, PIECE)):
        pieces += (tl.zeros((ROWS, piece_size(WIDTH, PIECE, i)), tl.float32),)
    return pieces


@triton.jit
def product(a, b, WIDTH: tl.constexpr, PIECE: tl.constexpr):
    """a b^T over all columns of two tiles in pieces."""
    total = tl.dot(a[0], tl.trans(b[0]), input_precision="ieee")
    for i in tl.static_range(1, piece_count(WIDTH, PIECE)):
        total = tl.dot(a[i], tl.trans(b[i]), total, input_precision="ieee")
    return total


@triton.jit
def add_products(sums, a, b, WIDTH: tl.constexpr, PIECE: tl.constexpr, APART: tl.constexpr = False):
    """sums + a b, where a is one tile and b a tile in pieces. APART: the products of a b are added among
    themselves first."""
    added = ()
    for i in tl.static_range(piece_count(WIDTH, PIECE)):
        if APART:
            # fma: the compiler makes one sum of a dot and an addition
            block = tl.dot(a, b[i], input_precision="ieee")
            added += (tl.fma(block, tl.full(block.shape, 1.0, tl.float32), sums[i]),)
        else:
            added += (tl.dot(a, b[i], sums[i], input_precision="ieee"),)
    return added
