"""Dropout masks in numpy: Philox-4x32-7 (Salmon and others, SC 2011) on coordinates, as the kernels draw
them.

One draw serves eight columns of a row with 16 bits each: of the columns 32k + 16a + 4q + j the counter is
(row, q, sequence *
num_head_q + head, k * an odd constant), j selects the word and a its half. The key is the seed with a hash
(splitmix64) of the
offset. Nothing depends on tiles, strides, lengths or where a sequence is stored, and masks of different
offsets have nothing in common.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .reference import Mask

Words = npt.NDArray[np.uint64]
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MASK64 = 2**64 - 1


def splitmix64(x: int) -> int:
    """The output function of SplitMix64 (Steele and others, OOPSLA 2014) for the state `x`."""
    z = x + 0x9E3779B97F4A7C15 & _MASK64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK64
    return z ^ z >> 31


def philox(
    key: int, counter: tuple[Words, Words, Words, Words], rounds: int = 7
) -> tuple[Words, Words, Words, Words]:
    """Four words of 32 bits each for every counter, after `rounds`: ten is usual, seven passes the same tests
    of randomness."""
    c0, c1, c2, c3 = np.broadcast_arrays(*counter)
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(rounds):
        high, low = np.uint64(0xCD9E8D57) * c2, np.uint64(0xD2511F53) * c0
        c0, c1 = high >> _HALF ^ c1 ^ np.uint64(k0), high & _LOW
        c2, c3 = low >> _HALF ^ c3 ^ np.uint64(k1), low & _LOW
        k0, k1 = k0 + 0x9E3779B9 & 0xFFFFFFFF, k1 + 0xBB67AE85 & 0xFFFFFFFF
    return c0, c1, c2, c3


def threshold(dropout_p: float) -> int:
    """The largest number of 16 bits that is dropped: the probability to the nearest 1/65536; one is always
    dropped, but all only with 1."""
    if dropout_p >= 1:
        return 65535
    return min(max(int(np.float32(dropout_p) * np.float32(65536) + np.float32(0.5)), 1), 65535) - 1


def keep_mask(
    *, seed: int, offset: int, dropout_p: float, planes: range, heads: int, rows: int, columns: int
) -> Mask:
    """What dropout keeps of the sequences `planes`: (len(planes), heads, rows, columns)."""
    plane = np.add.outer(np.array(planes) * heads, np.arange(heads)).astype(np.uint64)[..., None, None]
    row = np.arange(rows, dtype=np.uint64)[:, None]
    blocks = -(-columns // 32)
    block, quad = np.divmod(np.arange(4 * blocks, dtype=np.uint64)[None, :], np.uint64(4))
    block = block * np.uint64(0x9E3779B1) & _LOW
    key = (seed ^ splitmix64(offset & _MASK64)) & _MASK64
    words = np.stack(philox(key, (row, quad, plane, block)), axis=-1).astype(np.uint32)
    drawn = words.reshape(*words.shape[:3], blocks, 1, 16)
    halves = np.concatenate([drawn & 0xFFFF, drawn >> 16], axis=-2)
    kept = halves.reshape(*words.shape[:3], 32 * blocks) > threshold(dropout_p)
    return np.asarray(kept[..., :columns])
