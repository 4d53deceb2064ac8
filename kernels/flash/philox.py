"""Dropout masks in numpy: Philox-4x32-10 (Salmon and others, SC 2011) on coordinates, as the kernels draw them.

One draw is four columns of a row: the counter is (column // 4, row, sequence * num_head_q + head, 0), the key is the seed with
a hash (splitmix64) of the offset. Nothing depends on tiles, strides, lengths or where a sequence is stored, and
masks of different offsets have nothing in common.
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


def philox(key: int, counter: tuple[Words, Words, Words, Words]) -> tuple[Words, Words, Words, Words]:
    """Four words of 32 bits each for every counter, ten rounds."""
    c0, c1, c2, c3 = np.broadcast_arrays(*counter)
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        high, low = np.uint64(0xCD9E8D57) * c2, np.uint64(0xD2511F53) * c0
        c0, c1 = high >> _HALF ^ c1 ^ np.uint64(k0), high & _LOW
        c2, c3 = low >> _HALF ^ c3 ^ np.uint64(k1), low & _LOW
        k0, k1 = k0 + 0x9E3779B9 & 0xFFFFFFFF, k1 + 0xBB67AE85 & 0xFFFFFFFF
    return c0, c1, c2, c3


def threshold(dropout_p: float) -> int:
    """The largest word, as a signed number, that is dropped."""
    exact = (np.float32(dropout_p) - np.float32(0.5)) * np.float32(2.0**32)
    return int(np.clip(np.trunc(np.float64(exact)), -(2**31), 2**31 - 1))


def keep_mask(
    *, seed: int, offset: int, dropout_p: float, planes: range, heads: int, rows: int, columns: int
) -> Mask:
    """What dropout keeps of the sequences `planes`: (len(planes), heads, rows, columns)."""
    plane = np.add.outer(np.array(planes) * heads, np.arange(heads)).astype(np.uint64)[..., None, None]
    row = np.arange(rows, dtype=np.uint64)[:, None]
    group = np.arange(-(-columns // 4), dtype=np.uint64)[None, :]
    key = (seed ^ splitmix64(offset & _MASK64)) & _MASK64
    words = np.stack(philox(key, (group, row, plane, np.zeros_like(row))), axis=-1)
    signed = words.astype(np.uint32).view(np.int32)
    kept = signed > np.int64(threshold(dropout_p))
    return np.asarray(kept.reshape(*kept.shape[:3], 4 * kept.shape[3])[..., :columns])
