"""Random kernels give the same bits in Triton's interpreter, on the CPU back end and on the virtual GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings

from aotforge.targets.cpu.levels import host_level
from tests.integration.targets.cpu.features import compiled, executed
from tests.integration.targets.cpu.interpreted import Interpreter
from tests.integration.targets.cpu.random_kernels import kernels
from tests.integration.virtual_gpu.coverage import execute
from tests.integration.virtual_gpu.coverage.feature import Feature
from tests.integration.virtual_gpu.coverage.formats import Array, decode

pytestmark = [pytest.mark.compiler, pytest.mark.torch]
_CHECKS = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture)


@pytest.fixture
def interpreter(tmp_path: Path) -> Iterator[Interpreter]:
    client = Interpreter(tmp_path)
    yield client
    client.close()


def _assert_equal(feature: Feature, found: dict[str, Array], expected: dict[str, Array], who: str) -> None:
    for name, wanted in expected.items():
        kind = feature.tensors[name].kind
        got, want = decode(found[name], kind), decode(wanted, kind)
        wrong = np.flatnonzero(got != want)
        assert not wrong.size, (
            f"{name}[{wrong[0]}] is {got[wrong[0]]} {who}, {want[wrong[0]]} in the interpreter "
            f"({wrong.size} of {got.size} differ); n = {feature.values['n'][1]}, constants {feature.constants}\n{feature.source}"
        )


def _check(feature: Feature, interpreter: Interpreter, folder: Path, gpu: str = "") -> None:
    expected = interpreter(feature)
    assert not isinstance(expected, str), f"{expected}\n{feature.source}"
    _assert_equal(feature, executed(feature, compiled(feature, host_level(), folder)), expected, "on the CPU")
    if gpu:
        image = execute.compiled(feature, gpu, folder)
        found = execute.execute(feature, execute.load(image, gpu), image)
        _assert_equal(feature, found, expected, f"on the virtual {gpu}")


@settings(max_examples=2, derandomize=True, database=None, deadline=None, suppress_health_check=_CHECKS)
@given(kernels())
def test_a_sample_of_random_kernels(tmp_path: Path, interpreter: Interpreter, feature: Feature) -> None:
    _check(feature, interpreter, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("number", range(4))
def test_two_thousand_random_kernels(tmp_path: Path, interpreter: Interpreter, number: int) -> None:
    """500 each, on the virtual GPU of another arch."""
    gpu = ("gfx908", "gfx942", "gfx1100", "gfx1201")[number]

    @seed(number)
    @settings(max_examples=500, database=None, deadline=None, suppress_health_check=_CHECKS)
    @given(kernels())
    def check(feature: Feature) -> None:
        _check(feature, interpreter, tmp_path, gpu)

    check()
