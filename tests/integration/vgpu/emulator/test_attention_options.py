"""Features of attention beyond the shipped kernels, on every arch: float32, bias, dropout, variable length, atomics, small products.

Results are within twice the error of the same computation in the same precision, plus one unit in the last place of the largest
value, of float64 (`attention_options.FACTOR`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from aotforge.verify.interpreter.number_formats import DType, decode, encode
from tests.integration.vgpu.emulator.attention_options import Call, Images, misses
from tests.support.runtime import CACHE

pytestmark = pytest.mark.compiler
Maker = Callable[[str], Images]
ARCHS = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
DTYPES: tuple[DType, ...] = ("fp32", "fp16", "bf16")
VARIANTS = ("plain", "bias", "dropout", "dropout4", "varlen", "all")
SAMPLE: tuple[tuple[str, DType, str], ...] = (
    ("gfx908", "fp32", "all"),
    ("gfx1100", "fp16", "dropout4"),
    ("gfx950", "bf16", "bias"),
)
SHAPES = ("32x32x64", "16x16x64", "64x4x64", "4x64x64", "4x4x64", "8x8x32", "64x64x16", "16x16x16")


@pytest.fixture(scope="module")
def images_of() -> Maker:
    return cache(lambda arch: Images(arch, CACHE))


def _right(call: Call, images: Images) -> None:
    for schedule in (None, 5):
        worst = misses(call, call.execute(images, schedule=schedule))
        assert {name: ratio for name, ratio in worst.items() if ratio > 1} == {}


@pytest.mark.parametrize(("arch", "dtype", "variant"), SAMPLE)
def test_attention_with_options(images_of: Maker, arch: str, dtype: DType, variant: str) -> None:
    _right(Call(dtype=dtype, variant=variant), images_of(arch))


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("arch", ARCHS)
def test_attention_with_every_option(images_of: Maker, arch: str, dtype: DType, variant: str) -> None:
    _right(Call(dtype=dtype, variant=variant), images_of(arch))


def test_a_wrong_scale_another_seed_and_a_forgotten_bias_are_seen(images_of: Maker) -> None:
    call = Call(dtype="fp32", variant="all")
    found = call.execute(images_of("gfx908"))
    for wrong in (replace(call, scale=call.scale * 1.01), replace(call, variant="varlen")):
        assert min(ratio for name, ratio in misses(wrong, found).items() if name != "DV") > 1
    assert (
        misses(
            replace(call, variant="bias"), Call(dtype="fp32", variant="plain").execute(images_of("gfx908"))
        )["Out"]
        > 1
    )


def _product(images: Images, dtype: DType, shape: str) -> None:
    m, n, k = map(int, shape.split("x"))
    (job,) = images.jobs(f"dtype={dtype},shape={shape}:")
    rng = np.random.default_rng(1)
    # integers up to 8 in size, whose sums are exact in any order: a row, column or element in a wrong place shows
    a, b = (rng.integers(-8, 9, size).astype(np.float64) for size in ((m, k), (k, n)))
    own = [np.ascontiguousarray(encode(x, dtype)) for x in (a, b)]
    c = np.full((m, n), np.nan, dtype=np.float32)
    images.launch(job, (1, 1, 1), {"A": own[0], "B": own[1], "C": c}, None)
    assert np.array_equal(c, decode(own[0], dtype) @ decode(own[1], dtype))


@pytest.mark.parametrize(
    ("arch", "dtype", "shape"), [("gfx908", "fp16", "4x4x64"), ("gfx90a", "fp32", "32x32x64")]
)
def test_products(images_of: Maker, arch: str, dtype: DType, shape: str) -> None:
    _product(images_of(arch), dtype, shape)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("arch", ARCHS)
def test_products_of_every_shape(images_of: Maker, arch: str, dtype: DType) -> None:
    for shape in SHAPES:
        _product(images_of(arch), dtype, shape)
