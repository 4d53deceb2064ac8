"""Features of the Triton language on the virtual GPU: a sample by default, all of them and the page among the slow tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.integration.virtual_gpu.coverage.catalogue import FEATURES
from tests.integration.virtual_gpu.coverage.execute import PASSED, WRONG, run, run_all
from tests.integration.virtual_gpu.coverage.feature import elementwise, given
from tests.integration.virtual_gpu.coverage.formats import FP8, decode, encode, storage

pytestmark = pytest.mark.compiler
SAMPLE = (
    "i32 << >>",
    "fp16 tl.minimum(a, b)",
    "libdevice.asin fp32",
    "masked copy i8",
    "atomic_add i32",
    "tl.sort(t) fp32",
    "tl.join(x, y) fp16",
    "while",
    "randn",
    "dot fp16, 32x32x32",
)


@pytest.mark.parametrize("arch", ["gfx908", "gfx1100"])
def test_a_sample_of_features(arch: str, tmp_path: Path) -> None:
    outcomes = list(run_all([(FEATURES[name], arch) for name in SAMPLE], tmp_path))
    assert len(outcomes) == len(SAMPLE)
    assert [one for one in outcomes if one.verdict != PASSED] == []


def test_a_wrong_reference_is_reported(tmp_path: Path) -> None:
    numbers = {"x": given("i32", range(256))}
    feature = elementwise("wrong", "test", "x + 1", "i32", numbers, lambda x: np.where(x == 7, 0, x + 1))
    outcome = run(feature, "gfx908", tmp_path)
    assert outcome.verdict == WRONG
    assert outcome.reason == "o[7] is 8, not 0 (1 of 256 elements differ)"


def test_an_expected_fault_that_does_not_happen_is_wrong(tmp_path: Path) -> None:
    numbers = {"x": given("i32", range(256))}
    feature = elementwise("calm", "test", "x + 1", "i32", numbers, lambda x: x + 1, expects="a fault")
    assert run(feature, "gfx908", tmp_path).verdict == WRONG


@pytest.mark.parametrize("kind", ["bf16", *FP8])
def test_formats_round_to_the_nearest_number(kind: str) -> None:
    patterns = np.arange(2 ** (8 * storage(kind).itemsize), dtype=storage(kind))
    numbers = decode(patterns, kind)
    kept = np.isfinite(numbers)
    assert np.array_equal(decode(encode(numbers, kind), kind)[kept], numbers[kept])
    ordered = np.unique(numbers[kept])
    middle = (ordered[1:] + ordered[:-1]) / 2
    below, above = encode(np.nextafter(middle, -np.inf), kind), encode(np.nextafter(middle, np.inf), kind)
    assert np.array_equal(decode(below, kind), ordered[:-1])
    assert np.array_equal(decode(above, kind), ordered[1:])
    assert np.all(encode(middle, kind) % 2 == 0), "a tie goes to the even pattern"
