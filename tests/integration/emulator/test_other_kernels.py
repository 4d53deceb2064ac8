"""Kernels beside attention on every chip: reductions, transcendental functions, 64-bit integers, random numbers, atomics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aotforge.compile import Cache, KernelImage, compile_plan
from aotforge.emulator import Emulator
from aotforge.interpret.memory import Memory
from aotforge.plan import load_families, make_plan
from aotforge.plan.closure import SourceTree
from tests.integration.emulator.models.numbers import Array
from tests.support.families import architectures, profiles, toolchain, write_family

pytestmark = pytest.mark.compiler
N = 300
HEAD = "\n@triton.jit\ndef kernel(x, n, BLOCK: tl.constexpr):\n    i = tl.arange(0, BLOCK)\n"
SOFTMAX = """
    v = tl.load(x + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(x + i, e / tl.sum(e, 0), mask=i < n)
"""
FUNCTIONS = """
    v = tl.load(x + i)
    u = tl.abs(v)
    r = tl.erf(v) + tl.sin(v) * tl.cos(v) + tl.floor(v) + tl.ceil(v) + tl.sqrt(u) + tl.log(u + 1) + tl.rsqrt(u + 2)
    tl.store(x + i, r + (i // 7 % 5))
"""
INTEGERS = """
    w = i.to(tl.int64)
    a = (w * 1234567891 - n) // 12345 % 1000
    b = (w * 77777777777) >> 5
    tl.store(x + i, a.to(tl.float32) + (b & 255).to(tl.float32))
"""
RANDOM = """
    tl.store(x + i, tl.rand(n, i))
"""
ATOMICS = """
    p = tl.cast(x, tl.pointer_type(tl.int32))
    tl.atomic_add(p + i % 5, i)
    tl.atomic_max(p + 8 + i % 3, i)
    tl.atomic_xchg(p + 16 + i, i)
    tl.atomic_cas(p + 700, 0, 5)
    old = tl.atomic_add(p + 900, 1)
    tl.store(p + 901, old)
    tl.atomic_add(x + 1000 + i % 4, 0.5)
"""
HALVES = """
    v = tl.load(x + i)
    h = v.to(tl.float16)
    tl.store(x + i, (h * h + h).to(tl.float32) + v.to(tl.bfloat16).to(tl.float32))
"""


def softmax(x: Array) -> Array:
    e = np.exp(x[:N].astype(np.float64) - x[:N].max())
    return np.asarray(e / e.sum())


def functions(x: Array) -> Array:
    v = x[:256].astype(np.float64)
    u = np.abs(v)
    r = (
        np.vectorize(math.erf)(v)
        + np.sin(v) * np.cos(v)
        + np.floor(v)
        + np.ceil(v)
        + np.sqrt(u)
        + np.log(u + 1)
    )
    return np.asarray(r + 1 / np.sqrt(u + 2) + np.arange(256) // 7 % 5)


def integers(x: Array) -> Array:
    w = np.arange(256, dtype=np.int64)
    a = np.fmod(np.trunc((w * 1234567891 - N) / 12345), 1000)  # C's division, toward zero
    return np.asarray(a + (w * 77777777777 >> 5 & 255))


def philox(x: Array) -> Array:
    """Philox 4x32-10 (Salmon and others, SC 2011), counter (i, 0, 0, 0), key (n, 0); the first word as a float in [0, 1)."""
    c, key, mask = [list(range(256)), [0] * 256, [0] * 256, [0] * 256], [N, 0], 2**32 - 1
    for _ in range(10):
        high = [[0xCD9E8D57 * v >> 32 for v in c[2]], [0xD2511F53 * v >> 32 for v in c[0]]]
        low = [[0xCD9E8D57 * v & mask for v in c[2]], [0xD2511F53 * v & mask for v in c[0]]]
        c = [
            [h ^ a ^ key[0] for h, a in zip(high[0], c[1], strict=True)],
            low[0],
            [h ^ a ^ key[1] for h, a in zip(high[1], c[3], strict=True)],
            low[1],
        ]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    words = np.array(c[0], dtype=np.uint32).view(np.int32).astype(np.int64)
    return np.asarray(
        np.where(words < 0, -words - 1, words).astype(np.float32) * np.float32(4.6566127342e-10)
    )


def halves(x: Array) -> Array:
    h = x[:256].astype(np.float16).astype(np.float64)
    bits = x[:256].view(np.uint32).astype(np.uint64)
    rounded = (
        (bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16) << np.uint64(16)
    ).astype(np.uint32)
    return np.asarray((h * h + h).astype(np.float16).astype(np.float32) + rounded.view(np.float32))


Check = tuple[str, int, Callable[[Array], Array] | None, float]
KERNELS: Mapping[str, Check] = {
    "softmax": (SOFTMAX, 512, softmax, 1e-6),
    "functions": (FUNCTIONS, 256, functions, 3e-6),
    "integers": (INTEGERS, 256, integers, 0.0),
    "random": (RANDOM, 256, philox, 0.0),
    "halves": (HALVES, 256, halves, 0.0),
    "atomics": (ATOMICS, 64, None, 0.0),
}


@pytest.fixture(scope="module", params=["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, KernelImage]]:
    root, arch = tmp_path_factory.mktemp("kernels"), request.param
    for name, (text, block, _, _) in KERNELS.items():
        write_family(root, name, HEAD + text, blocks=(block,), warps=4, spills="report")
    plan = make_plan(
        load_families(root),
        SourceTree(root=root),
        archs=[arch],
        architectures=architectures(),
        profiles=profiles(),
        profile="full",
        toolchain=toolchain(),
    )
    with Cache(tmp_path_factory.mktemp("cache")) as cache:
        images = compile_plan(plan, kernels_root=root, architectures=architectures(), cache=cache, jobs=2)
        return arch, {job.family: images[job.key] for job in plan.jobs}


def _launch(made: tuple[str, dict[str, KernelImage]], name: str, x: Array, **options: Any) -> None:
    arch, images = made
    image = images[name]
    program = Emulator(arch).load(image.hsaco, image.asm)
    lds = image.resources.dynamic_lds_bytes
    program.launch((1, 1, 1), [x.ctypes.data, N], Memory({"x": x}), lds_bytes=lds, **options)


@pytest.mark.parametrize("name", [name for name, check in KERNELS.items() if check[2]])
def test_kernel_agrees_with_its_reference(made: tuple[str, dict[str, KernelImage]], name: str) -> None:
    _, _, reference, tolerance = KERNELS[name]
    assert reference is not None
    x = (np.random.default_rng(11).standard_normal(2048) * 2).astype(np.float32)
    expected = reference(x)
    for schedule in (None, 2):
        out = x.copy()
        _launch(made, name, out, schedule=schedule)
        error = np.abs(out[: len(expected)] - expected)
        assert error.max() <= tolerance * max(1.0, np.abs(expected).max())
        assert np.array_equal(out[512:], x[512:])


def test_atomics(made: tuple[str, dict[str, KernelImage]]) -> None:
    x = np.zeros(1024, dtype=np.float32)
    _launch(made, "atomics", x, schedule=1)
    words, i = x.view(np.int32), np.arange(64)
    assert words[:5].tolist() == [int(i[i % 5 == r].sum()) for r in range(5)]
    assert words[8:11].tolist() == [63, 61, 62]
    assert words[16:80].tolist() == i.tolist()
    assert (words[700], words[900], words[901]) == (5, 1, 0)
    assert x[1000:1004].tolist() == [8.0] * 4
