"""Random kernels give the same bits in Triton's interpreter, on the CPU back end and on the virtual GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, seed, settings

from aotforge.errors import DecodeError
from aotforge.targets.cpu.levels import host_level
from aotforge.virtual_gpu.emulator.interpreter_library import load_library
from aotforge.virtual_gpu.emulator.targets import emulated_target
from tests.integration.targets.cpu.features import compiled, executed
from tests.integration.targets.cpu.interpreted import Interpreter
from tests.integration.targets.cpu.random_kernels import kernels
from tests.integration.virtual_gpu.coverage import execute
from tests.integration.virtual_gpu.coverage.feature import Feature
from tests.integration.virtual_gpu.coverage.formats import Array, decode

pytestmark = [pytest.mark.compiler, pytest.mark.torch]
_CHECKS = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture)
_CHUNKS, _CHUNK = 40, 50
_ARCHS = ("gfx908", "gfx942", "gfx1100", "gfx1201")


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interpreter]:
    client = Interpreter(tmp_path_factory.mktemp("interpreted"))
    yield client
    client.close()


def _difference(feature: Feature, found: dict[str, Array], expected: dict[str, Array], who: str) -> str:
    for name, wanted in expected.items():
        kind = feature.tensors[name].kind
        got, want = decode(found[name], kind), decode(wanted, kind)
        wrong = np.flatnonzero(got != want)
        if wrong.size:
            return (
                f"{name}[{wrong[0]}] is {got[wrong[0]]} {who}, {want[wrong[0]]} in the interpreter "
                f"({wrong.size} of {got.size} differ); n = {feature.values['n'][1]}, constants {feature.constants}\n{feature.source}"
            )
    return ""


def _compare(feature: Feature, interpreter: Interpreter, folder: Path, gpu: str = "") -> str:
    """The first difference, or ''."""
    expected = interpreter(feature)
    if isinstance(expected, str):
        return f"{expected}\n{feature.source}"
    found = executed(feature, compiled(feature, host_level(), folder))
    reason = _difference(feature, found, expected, "on the CPU")
    if gpu and not reason:
        image = execute.compiled(feature, gpu, folder)
        try:
            program = execute.load(image, gpu)
        except DecodeError as error:
            # a conversion to float8e5 beside one to float16 sets a mode that the virtual GPU refuses
            assume("FP16_OVFL" not in error.what)
            raise
        reason = _difference(
            feature, execute.execute(feature, program, image), expected, f"on the virtual {gpu}"
        )
    return reason


@settings(max_examples=2, derandomize=True, database=None, deadline=None, suppress_health_check=_CHECKS)
@given(kernels())
def test_a_sample_of_random_kernels(tmp_path: Path, interpreter: Interpreter, feature: Feature) -> None:
    reason = _compare(feature, interpreter, tmp_path)
    assert not reason, reason


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("number", range(_CHUNKS))
def test_two_thousand_random_kernels(tmp_path: Path, interpreter: Interpreter, number: int) -> None:
    """50 different ones each, on the virtual GPUs of several archs in turn. All differences of a chunk are found before it fails."""
    gpu = _ARCHS[number % len(_ARCHS)]
    load_library(emulated_target(gpu).lanes, variant="checks")  # once, not the handlers of each kernel
    agreed: set[str] = set()
    differences: list[str] = []

    @seed(number)
    @settings(
        max_examples=2 * _CHUNK,
        database=None,
        deadline=None,
        suppress_health_check=_CHECKS,
        phases=[Phase.generate],
    )
    @given(kernels())
    def check(feature: Feature) -> None:
        if feature.source in agreed or len(agreed) == _CHUNK:
            return
        reason = _compare(feature, interpreter, tmp_path, gpu)
        if reason:
            differences.append(reason)
        else:
            agreed.add(feature.source)

    check()
    assert not differences, "\n\n".join(differences)
    assert len(agreed) == _CHUNK
