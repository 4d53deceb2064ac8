"""Parts of the kernels beside tiles: where a sequence is stored, which keys a window shows, what dropout
keeps."""

import triton
import triton.language as tl

TOP_LEFT: tl.constexpr = tl.constexpr(-2147483647)
BOTTOM_RIGHT: tl.constexpr = tl.constexpr(-2147483646)
COMPACT: tl.constexpr = tl.constexpr(1 | 1 << 1 | 1 << 3)
"""A side's byte of `varlen_bits`: sequences one after another in one plane, where an array of their ends gives places and lengths."""


@triton.jit
def sequence_of(z, mode, info0, info1, longest):
    """(plane, start, length) of sequence z on one side. `mode`: that side's byte of `varlen_bits`; 0 is a
    plane of its own.

    Plane and start are unsigned: their products with strides of 64 bits take two instructions less.
    """
    z = z.to(tl.int32)
    plane = z
    start = 0
    length = longest
    if mode != 0:
        if mode & 31 == COMPACT:
            plane = 0
            start = tl.load(info0 + z)
            length = tl.load(info0 + z + 1) - start
        else:
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
    return plane.to(tl.uint32), start.to(tl.uint32), length


@triton.jit
def window_of(left, right, n_q, n_k):
    """(left, right) of one sequence: the caller's constants resolved, and clamped so that sums stay within 32
    bits.

    Clamping changes no mask: a window beyond the sequence shows no more, one before it no less than nothing.
    """
    left = tl.where((left == TOP_LEFT) | (left == BOTTOM_RIGHT), n_q, left)
    right = tl.where(right == TOP_LEFT, 0, tl.where(right == BOTTOM_RIGHT, n_k - n_q, right))
    return tl.maximum(tl.minimum(left, n_q), -n_k), tl.maximum(tl.minimum(right, n_k), -n_q)


@triton.jit
def dropout_key(seed, offset1, offset2):
    """The generator's key: the seed with a hash of the offset (splitmix64), so that masks of two offsets
    share nothing.

    A null pointer counts as 0.
    """
    z = tl.load(offset1, mask=offset1.to(tl.int64) != 0, other=0) + offset2 + 0x9E3779B97F4A7C15
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return tl.load(seed, mask=seed.to(tl.int64) != 0, other=0) ^ z ^ (z >> 31)


@triton.jit
def dropout_limit(p):
    """The largest random number of 16 bits that is dropped: the probability to the nearest 1/65536, at least
    one and below 1."""
    dropped = tl.minimum(tl.maximum((p * 65536.0 + 0.5).to(tl.int32), 1), 65535)
    # of 1 everything is dropped
    return tl.where(p < 1.0, dropped - 1, 65535).to(tl.uint32)


@triton.jit
def dropout_gain(p):
    """The factor of what is kept; 0 with p = 1, when nothing is."""
    return tl.where(p < 1.0, 1.0 / (1.0 - p), 0.0)


@triton.jit
def _product(factor, word):
    """(high, low) words of a product. One instruction makes both, and the compiler takes `umulhi` for cheap:
    it draws in the layout
    of the scores rather than moving what was drawn there.
    """
    return tl.umulhi(word, tl.full((), factor, tl.uint32)), (word.to(tl.uint64) * factor).to(tl.uint32)


@triton.jit
def _random_words(key, row, quad, plane, block):
    """Philox-4x32-7 (Salmon and others, SC 2011) of the counter (row, quad, plane, block).

    What a loop over columns changes is the last word, which only an exclusive or reads: most of the first
    three rounds is invariant.
    """
    k0 = key.to(tl.uint32)
    k1 = (key >> 32).to(tl.uint32)
    c0, c1, c2, c3 = row, quad, plane, block
    for _ in tl.static_range(7):
        high2, low2 = _product(0xCD9E8D57, c2)
        high0, low0 = _product(0xD2511F53, c0)
        c0, c1 = high2 ^ (c1 ^ k0), low2
        c2, c3 = high0 ^ (c3 ^ k1), low0
        k0 += 0x9E3779B9
        k1 += 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def kept(key, plane, row, column, limit, ROWS: tl.constexpr, COLS: tl.constexpr):
    """What dropout keeps of (ROWS, COLS) from `row` and `column` on, a multiple of 16: integers with all bits
    set, or 0.

    A function of the coordinates alone, so that every kernel draws the same mask; `plane` is z * num_head_q +
    head. Columns c and
    c + 16 of each 32 take the halves of one word: with every matrix instruction both are in one lane's
    registers.
    """
    HALVES: tl.constexpr = 2 if COLS >= 32 else 1
    BLOCKS: tl.constexpr = COLS // (16 * HALVES)
    rows = (row + tl.arange(0, ROWS))[:, None, None].to(tl.uint32)
    quads = tl.arange(0, 4)[None, None, :].to(tl.uint32)
    # a product that wraps keeps the compiler from counting blocks in 64 bits
    blocks = (column // 32 + tl.arange(0, BLOCKS))[None, :, None].to(tl.uint32) * 0x9E3779B1
    r0, r1, r2, r3 = _random_words(key, rows, quads, plane.to(tl.uint32), blocks)
    words = tl.join(tl.join(r0, r2), tl.join(r1, r3)).reshape((ROWS, BLOCKS, 1, 16))
    half = (column & 16) + tl.arange(0, HALVES)[None, None, :, None] * 16
    numbers = (words >> half.to(tl.uint32)).to(tl.uint16)
    return tl.where(numbers > limit.to(tl.uint16), -1, 0).reshape((ROWS, COLS))


@triton.jit
def only(keep, values):
    """Values where `keep` has all bits set, 0 where it has none."""
    return (values.to(tl.int32, bitcast=True) & keep).to(tl.float32, bitcast=True)
