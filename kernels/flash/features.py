"""Parts of the kernels beside tiles: where a sequence is stored, which keys a window shows, what dropout keeps."""

import triton
import triton.language as tl

TOP_LEFT: tl.constexpr = tl.constexpr(-2147483647)
BOTTOM_RIGHT: tl.constexpr = tl.constexpr(-2147483646)


@triton.jit
def sequence_of(z, mode, info0, info1, longest):
    """(plane, start, length) of sequence z on one side. `mode`: that side's byte of `varlen_bits`; 0 is a plane of its own."""
    plane = z
    start = 0
    length = longest
    if mode != 0:
        counted = (mode >> 1) & 3
        placed = (mode >> 3) & 3
        if mode & 1:
            plane = 0
            if placed == 0:
                start = z * longest
        if counted == 1:
            length = tl.load(info0 + z + 1) - tl.load(info0 + z)
        if counted == 2:
            length = tl.load(info0 + z)
        if placed == 1:
            start = tl.load(info0 + z)
        if placed == 2:
            start = tl.load(info1 + z)
    return plane, start, length


@triton.jit
def window_of(left, right, n_q, n_k):
    """(left, right) of one sequence: the caller's constants resolved, and clamped so that sums stay within 32 bits.

    Clamping changes no mask: a window beyond the sequence shows no more, one before it no less than nothing.
    """
    left = tl.where((left == TOP_LEFT) | (left == BOTTOM_RIGHT), n_q, left)
    right = tl.where(right == TOP_LEFT, 0, tl.where(right == BOTTOM_RIGHT, n_k - n_q, right))
    return tl.maximum(tl.minimum(left, n_q), -n_k), tl.maximum(tl.minimum(right, n_k), -n_q)


@triton.jit
def dropout_key(seed, offset1, offset2):
    """The generator's key: the seed with a hash of the offset (splitmix64), so that masks of two offsets share nothing.

    A null pointer counts as 0.
    """
    z = tl.load(offset1, mask=offset1.to(tl.int64) != 0, other=0) + offset2 + 0x9E3779B97F4A7C15
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return tl.load(seed, mask=seed.to(tl.int64) != 0, other=0) ^ z ^ (z >> 31)


@triton.jit
def dropout_limit(p):
    """The largest random word, as a signed number, that is dropped."""
    # of 1 the product does not fit 32 bits
    return tl.where(p < 1.0, ((p - 0.5) * 4294967296.0).to(tl.int32), 2147483647)


@triton.jit
def dropout_gain(p):
    """The factor of what is kept; 0 with p = 1, when nothing is."""
    return tl.where(p < 1.0, 1.0 / (1.0 - p), 0.0)


@triton.jit
def kept(key, plane, row, column, limit, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Which elements of (ROWS, COLS) dropout keeps, from `row` and `column` on, a multiple of 4; `plane`: z * num_head_q + head.

    Philox-4x32-10 on coordinates: nothing else about the call has a part, so that every kernel draws the same mask.
    """
    rows = (row + tl.arange(0, ROWS))[:, None]
    groups = (column // 4 + tl.arange(0, COLS // 4))[None, :]
    r0, r1, r2, r3 = tl.philox(key, groups, rows, plane, 0)
    words = tl.join(tl.join(r0, r2), tl.join(r1, r3)).reshape((ROWS, COLS))
    return words.to(tl.int32, bitcast=True) > limit
