"""Kernels beside attention on every arch: reductions, transcendental functions, 64-bit integers, random numbers, atomics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.model import KernelImage
from aotforge.plan.closure import SourceTree
from aotforge.plan.families import load_families
from aotforge.plan.planner import make_plan
from tests.integration.vgpu.emulator.models.numbers import Array
from tests.support.families import architectures, hazards, profiles, toolchain, write_family
from tests.support.runtime import CACHE
from vgpu.emulator.launch import LaunchRequest
from vgpu.emulator.program import Emulator
from vgpu.memory import Memory

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
MORE_ATOMICS = """
    f = i.to(tl.float32) - 20.5
    tl.atomic_max(x + 100 + i % 3, f)
    tl.atomic_min(x + 110 + i % 3, f)
    p = tl.cast(x, tl.pointer_type(tl.int32))
    tl.atomic_and(p + 120 + 0 * i, ~(1 << (i % 30)))
    tl.atomic_or(p + 121 + 0 * i, 1 << (i % 30))
    tl.atomic_xor(p + 122 + 0 * i, i * 77)
    tl.atomic_min(p + 123 + 0 * i, -i)
    tl.atomic_max(p + 128 + 0 * i, i - 20)
    u = tl.cast(x, tl.pointer_type(tl.uint32))
    tl.atomic_max(u + 124 + 0 * i, 0x80000000 + i.to(tl.uint32))
    tl.atomic_min(u + 125 + 0 * i, 0x80000000 + i.to(tl.uint32))
    w = tl.cast(x, tl.pointer_type(tl.int64))
    tl.atomic_add(w + 70 + i % 2, i.to(tl.int64) << 33)
    h = tl.cast(x, tl.pointer_type(tl.float16))
    tl.atomic_add(h + 400 + i % 6, (i % 4).to(tl.float16))
    b = tl.cast(x, tl.pointer_type(tl.bfloat16))
    tl.atomic_add(b + 440 + i % 6, (i % 4).to(tl.bfloat16))
"""
HISTOGRAM = """
    p = tl.cast(x, tl.pointer_type(tl.int32))
    v = tl.load(x + i)
    tl.store(p + tl.arange(0, 32), tl.histogram(tl.minimum(tl.abs(v) * 8, 31).to(tl.int32), 32))
"""
SCANS = """
    v = tl.load(x + i)
    order = tl.sort(v)
    where = tl.argmax(v, 0)
    tl.store(x + i, tl.cumsum(i, 0).to(tl.float32) + tl.gather(order, (i * 5) % BLOCK, 0) * 4096 + where)
"""
TILES = 10
SPILLS = (
    """
    o = i[:, None] * BLOCK + i[None, :]
"""
    + "".join(f"    t{k} = tl.load(x + o + {k} * BLOCK * BLOCK)\n" for k in range(TILES))
    + "".join(
        # a sum of all elements of all tiles is needed before the first is stored, so all are alive at once
        [f"    s = {' + '.join(f'tl.max(tl.max(t{k}, 1), 0)' for k in range(TILES))}\n"]
        + [f"    tl.store(x + o + {k} * BLOCK * BLOCK, t{k} * s)\n" for k in range(TILES)]
    )
)


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


def scans(x: Array) -> Array:
    v, i = x[:256].astype(np.float64), np.arange(256)
    return np.asarray(i.cumsum() + np.sort(v)[i * 5 % 256] * 4096 + v.argmax())


def histogram(x: Array) -> Array:
    bins = np.minimum(np.abs(x[:256]) * np.float32(8), np.float32(31)).astype(np.int64)
    return np.bincount(bins, minlength=32).astype(np.int32).view(np.float32)


def spilt(x: Array) -> Array:
    tiles = x[: TILES * 1024].reshape(TILES, 1024)
    total = np.float32(0)
    for k in range(TILES):
        total = tiles[k].max() if k == 0 else np.float32(total + tiles[k].max())
    return np.asarray((tiles * total).ravel())


Check = tuple[str, int, Callable[[Array], Array] | None, float]
KERNELS: Mapping[str, Check] = {
    "softmax": (SOFTMAX, 512, softmax, 1e-6),
    "functions": (FUNCTIONS, 256, functions, 3e-6),
    "integers": (INTEGERS, 256, integers, 0.0),
    "random": (RANDOM, 256, philox, 0.0),
    "halves": (HALVES, 256, halves, 0.0),
    "histogram": (HISTOGRAM, 256, histogram, 0.0),
    "scans": (SCANS, 256, scans, 2.0**-23),
    "spills": (SPILLS, 32, spilt, 0.0),
    "atomics": (ATOMICS, 64, None, 0.0),
    "more_atomics": (MORE_ATOMICS, 64, None, 0.0),
}


SAMPLE = ("gfx908", "gfx1100")
OTHERS = [pytest.param(arch, marks=pytest.mark.slow) for arch in ("gfx90a", "gfx942", "gfx950", "gfx1201")]


@pytest.fixture(scope="module", params=[*SAMPLE, *OTHERS])
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, KernelImage]]:
    root, arch = tmp_path_factory.mktemp("kernels"), request.param
    for name, (text, block, _, _) in KERNELS.items():
        # eight waves a SIMD leave few registers to each
        warps, waves = (1, 8) if name == "spills" else (4, 0)
        write_family(root, name, HEAD + text, blocks=(block,), warps=warps, waves=waves, spills="report")
    plan = make_plan(
        load_families(root),
        SourceTree(root=root),
        archs=[arch],
        architectures=architectures(),
        profiles=profiles(),
        profile="full",
        toolchain=toolchain(),
        hazards=hazards(),
    )
    with Cache(CACHE) as cache:
        images = compile_plan(plan, kernels_root=root, architectures=architectures(), cache=cache, jobs=2)
        return arch, {job.family: images[job.key] for job in plan.jobs}


def _launch(made: tuple[str, dict[str, KernelImage]], name: str, x: Array, **options: Any) -> None:
    arch, images = made
    image = images[name]
    program = Emulator(arch).load(image.binary, image.asm)
    lds = image.resources.dynamic_shared_bytes
    program.launch(
        LaunchRequest(
            grid=(1, 1, 1), arguments=[x.ctypes.data, N], memory=Memory({"x": x}), lds_bytes=lds, **options
        )
    )


@pytest.mark.parametrize("name", [name for name, check in KERNELS.items() if check[2]])
def test_kernel_agrees_with_its_reference(made: tuple[str, dict[str, KernelImage]], name: str) -> None:
    _, _, reference, tolerance = KERNELS[name]
    assert reference is not None
    x = (np.random.default_rng(11).standard_normal(TILES * 1024 + 512) * 2).astype(np.float32)
    expected = reference(x)
    for schedule in (None, 2):
        out = x.copy()
        _launch(made, name, out, schedule=schedule)
        error = np.abs(out[: len(expected)] - expected)
        assert error.max() <= tolerance * max(1.0, np.abs(expected).max())
        rest = max(512, len(expected))
        assert np.array_equal(out[rest:], x[rest:])


def test_the_kernel_with_too_many_values_spills_to_scratch(made: tuple[str, dict[str, KernelImage]]) -> None:
    assert made[1]["spills"].resources.scratch_bytes > 0


def test_every_kind_of_atomic(made: tuple[str, dict[str, KernelImage]]) -> None:
    x = np.zeros(1024, dtype=np.float32)
    words, unsigned, wide = x.view(np.int32), x.view(np.uint32), x.view(np.int64)
    words[120], unsigned[125] = -1, 2**32 - 1
    _launch(made, "more_atomics", x, schedule=3)
    i = np.arange(64)
    assert x[100:103].tolist() == [42.5, 40.5, 41.5]
    assert x[110:113].tolist() == [-20.5, -19.5, -18.5]
    assert unsigned[120:122].tolist() == [0xC0000000, 0x3FFFFFFF]
    assert words[122] == np.bitwise_xor.reduce(i * 77)
    # Triton 3.9.0 combines lanes of one address first on these archs, with v_min_u32 and v_max_u32 though global_atomic_smin and
    # smax follow: -63 and 43 are the source's results, and hardware would execute the image
    assert (words[123], words[128]) == ((0, 0) if made[0] in {"gfx942", "gfx950"} else (-63, 43))
    assert unsigned[124:126].tolist() == [0x8000003F, 0x80000000]
    assert wide[70:72].tolist() == [int(i[i % 2 == r].sum()) << 33 for r in range(2)]
    sums = [float((i % 4)[i % 6 == r].sum()) for r in range(6)]
    assert x.view(np.float16)[400:406].tolist() == sums
    bits = x.view(np.uint16)[440:446].astype(np.uint32) << np.uint32(16)
    assert bits.view(np.float32).tolist() == sums


def test_atomics(made: tuple[str, dict[str, KernelImage]]) -> None:
    x = np.zeros(1024, dtype=np.float32)
    _launch(made, "atomics", x, schedule=1)
    words, i = x.view(np.int32), np.arange(64)
    assert words[:5].tolist() == [int(i[i % 5 == r].sum()) for r in range(5)]
    assert words[8:11].tolist() == [63, 61, 62]
    assert words[16:80].tolist() == i.tolist()
    assert (words[700], words[900], words[901]) == (5, 1, 0)
    assert x[1000:1004].tolist() == [8.0] * 4
