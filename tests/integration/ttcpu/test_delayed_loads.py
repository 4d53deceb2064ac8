"""Loads that wait for their store, and masks that are true everywhere: the same results, also where memory
overlaps."""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np
import pytest

from tests.integration.ttcpu.features import loaded
from tests.support.cpu_launch import Loaded, run
from tests.support.modules import load_module

pytestmark = pytest.mark.compiler
BLOCK = 512
SOURCE = """import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n, other=0)
    tl.store(out + at, a + tl.load(y + at, mask=at < n, other=0), mask=at < n)


@triton.jit
def exchange(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at)
    b = tl.load(y + at)
    tl.store(y + at, a + 1)
    tl.store(x + at, b + 2)


@triton.jit
def first(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at)
    tl.store(x + BLOCK - 1, 7)
    tl.store(out + at, a)


@triton.jit
def suffix(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at), mask=(BLOCK - 1 - at < n) & (n > 0))


@triton.jit
def upto(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=n >= at, other=5)
    tl.store(out + at, a, mask=(n >= at) & (at <= BLOCK - 2))


@triton.jit
def widened(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out.to(tl.pointer_type(tl.int64)) + at, tl.load(x + at).to(tl.int64))
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load_module(tmp_path_factory.mktemp("delayed") / "delayed_kernels.py", SOURCE)


@functools.cache
def _loaded(kernel: object) -> Loaded:
    signature = {"x": "*i32", "y": "*i32", "out": "*i32", "n": "i32", "BLOCK": "constexpr"}
    return loaded(kernel, signature, {"BLOCK": BLOCK})


class _Memory:
    """One array of int32 and kernels whose arguments are places in it."""

    def __init__(self) -> None:
        self.words = np.arange(4 * BLOCK, dtype=np.int32) * 3

    def launch(self, kernel: object, x: int, y: int, out: int, n: int) -> None:
        places = [self.words.ctypes.data + 4 * offset for offset in (x, y, out)]
        run(_loaded(kernel), (1, 1, 1), struct.pack("<QQQi4x", *places, n))


@pytest.mark.parametrize("out", [0, 1, 3, 16, 17, BLOCK - 1, BLOCK, 2 * BLOCK])
@pytest.mark.parametrize("n", [0, BLOCK - 3, BLOCK])
def test_a_sum_over_its_own_operands(kernels: Any, out: int, n: int) -> None:
    """All is read before anything is written, wherever the result is."""
    for x, y in ((1, 5), (out, 3 * BLOCK)):
        memory = _Memory()
        wanted = memory.words.copy()
        wanted[out : out + n] = memory.words[x : x + n] + memory.words[y : y + n]
        memory.launch(kernels.add, x, y, out, n)
        assert np.array_equal(memory.words, wanted)


@pytest.mark.parametrize("n", [0, 1, 17, BLOCK - 1, BLOCK, BLOCK + 9])
def test_masks(kernels: Any, n: int) -> None:
    """The last element of one is true before the others are; the other one ends below the last element."""
    memory = _Memory()
    wanted = memory.words.copy()
    written = min(n, BLOCK)
    wanted[2 * BLOCK - written : 2 * BLOCK] = wanted[BLOCK - written : BLOCK]
    memory.launch(kernels.suffix, 0, 0, BLOCK, n)
    assert np.array_equal(memory.words, wanted)
    written = min(n + 1, BLOCK - 1)
    wanted[2 * BLOCK : 2 * BLOCK + written] = wanted[:written]
    memory.launch(kernels.upto, 0, 0, 2 * BLOCK, n)
    assert np.array_equal(memory.words, wanted)


def test_two_tensors_change_places(kernels: Any) -> None:
    memory = _Memory()
    wanted = memory.words.copy()
    wanted[:BLOCK], wanted[BLOCK : 2 * BLOCK] = memory.words[BLOCK : 2 * BLOCK] + 2, memory.words[:BLOCK] + 1
    memory.launch(kernels.exchange, 0, BLOCK, 0, 0)
    assert np.array_equal(memory.words, wanted)


def test_a_store_between_a_load_and_its_store(kernels: Any) -> None:
    memory = _Memory()
    wanted = memory.words.copy()
    wanted[2 * BLOCK : 3 * BLOCK] = wanted[:BLOCK]
    wanted[BLOCK - 1] = 7
    memory.launch(kernels.first, 0, 0, 2 * BLOCK, 0)
    assert np.array_equal(memory.words, wanted)


def test_wider_elements_at_the_same_place(kernels: Any) -> None:
    memory = _Memory()
    wanted = memory.words[:BLOCK].astype(np.int64)
    memory.launch(kernels.widened, 0, 0, 0, 0)
    assert np.array_equal(memory.words[: 2 * BLOCK].view(np.int64), wanted)
