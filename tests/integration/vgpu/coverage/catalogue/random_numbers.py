"""Random numbers: Philox 4x32-10 (Salmon and others, SC 2011) from Python integers."""

from __future__ import annotations

import numpy as np

from tests.integration.vgpu.coverage.feature import Feature, N, out
from tests.integration.vgpu.coverage.formats import Array

_GROUP = "random numbers"
_SEED = 0x1234_5678_9ABC
_MASK = 2**32 - 1


def philox(seed: int, count: int, rounds: int = 10) -> Array:
    """Four words for each of `count` counters, the last word of the counter first zero."""
    words = []
    for counter in range(count):
        c, key = [counter, 0, 0, 0], [seed & _MASK, seed >> 32]
        for _ in range(rounds):
            low, high = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [high >> 32 ^ c[1] ^ key[0], high & _MASK, low >> 32 ^ c[3] ^ key[1], low & _MASK]
            key = [key[0] + 0x9E3779B9 & _MASK, key[1] + 0xBB67AE85 & _MASK]
        words.append(c)
    return np.array(words, dtype=np.uint32).T


def uniform(words: Array) -> Array:
    """Of [0, 1): the word as a signed number, folded to positive ones."""
    signed = words.view(np.int32).astype(np.int64)
    folded = np.where(signed < 0, -signed - 1, signed).astype(np.float32)
    return (folded * np.float32(4.6566127342e-10)).astype(np.float64)


def normal_pair(words: Array) -> Array:
    """By the method of Box and Muller."""
    a, b = np.maximum(uniform(words[0]), 1e-7), uniform(words[1])
    return np.asarray(np.sqrt(-2 * np.log(a)) * np.cos(2 * np.pi * b))


def _random(name: str, expression: str, kind: str, reference: Array, tolerance: float = 0.0) -> Feature:
    body = f"i = tl.arange(0, {N})\ntl.store(o + i, {expression})"
    return Feature(name=name, group=_GROUP, body=body, tensors={"o": out(kind)}, reference=lambda: reference,
                   values={"seed": ("i64", _SEED)}, tolerance=tolerance)  # fmt: skip


_WORDS = philox(_SEED, N)
FEATURES = (
    _random("randint", "tl.randint(seed, i).to(tl.uint32, bitcast=True)", "u32", _WORDS[0]),
    *(_random(f"randint4x, word {k}", f"tl.randint4x(seed, i)[{k}].to(tl.uint32, bitcast=True)", "u32",
        _WORDS[k]) for k in range(4)),
    _random("randint, 7 rounds", "tl.randint(seed, i, 7).to(tl.uint32, bitcast=True)", "u32",
        philox(_SEED, N, 7)[0]),
    _random("rand", "tl.rand(seed, i)", "fp32", uniform(_WORDS[0])),
    _random("rand4x", "tl.rand4x(seed, i)[2]", "fp32", uniform(_WORDS[2])),
    _random("randn", "tl.randn(seed, i)", "fp32", normal_pair(_WORDS), 2e-6),
    _random("randn4x", "tl.randn4x(seed, i)[2]", "fp32", normal_pair(_WORDS[2:]), 2e-6),
)  # fmt: skip
