"""Random kernels give the same bits in Triton's interpreter, on the CPU back end and on the virtual GPU."""

from __future__ import annotations

import multiprocessing
import resource
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, seed, settings

from aotforge.errors import AotforgeError
from tests.integration.ttcpu.features import compiled, executed
from tests.integration.ttcpu.interpreted import Interpreter
from tests.integration.ttcpu.random_kernels import kernels
from tests.integration.vgpu.coverage import execute
from tests.integration.vgpu.coverage.feature import Feature
from tests.integration.vgpu.coverage.formats import Array, decode
from ttcpu.levels import host_level
from vgpu.emulator.interpreter_library import load_library
from vgpu.emulator.targets import emulated_target

pytestmark = [pytest.mark.compiler, pytest.mark.torch]
_CHECKS = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture)
_CHUNKS, _CHUNK = 40, 50
_SECONDS = 30
"""Processor time of a kernel for AMD: Triton 3.9's layout passes do not end for some."""
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
                f"({wrong.size} of {got.size} differ); "
                f"n = {feature.values['n'][1]}, constants {feature.constants}\n{feature.source}"
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
        on_gpu = _on_virtual_gpu(feature, gpu, folder)
        assume(on_gpu is not None)
        assert on_gpu is not None
        if isinstance(on_gpu, str):
            return on_gpu
        reason = _difference(feature, on_gpu, expected, f"on the virtual {gpu}")
    return reason


def _on_virtual_gpu(feature: Feature, gpu: str, folder: Path) -> dict[str, Array] | str | None:
    """The written tensors; what failed; None where Triton's compiler for AMD does not end or the virtual GPU
    lacks an instruction."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_gpu_process, args=(feature, gpu, folder, sender))
    process.start()
    sender.close()
    try:
        found: dict[str, Array] | str | None = receiver.recv()
    except EOFError:
        found = "the compiler for AMD ends its process"
    process.join()
    return None if process.exitcode == -signal.SIGXCPU else found


def _gpu_process(feature: Feature, gpu: str, folder: Path, sender: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS + 1))
    try:
        image = execute.compiled(feature, gpu, folder)
        buffers = execute.execute(feature, execute.load(image, gpu), image)
        sender.send({name: buffers[name] for name, tensor in feature.tensors.items() if tensor.written})
    except AotforgeError as error:
        # a mode that a conversion to float8e5 beside one to float16 sets; s_cmp_o_f16 of gfx12
        missing = "only MODE's bit 23" in error.what or "unknown instruction" in error.what
        sender.send(None if missing else f"{error}\n{feature.source}")
    except Exception as error:  # noqa: BLE001 - a difference like any other
        sender.send(f"{error!r}\n{feature.source}")


@settings(max_examples=2, derandomize=True, database=None, deadline=None, suppress_health_check=_CHECKS)
@given(kernels())
def test_a_sample_of_random_kernels(tmp_path: Path, interpreter: Interpreter, feature: Feature) -> None:
    reason = _compare(feature, interpreter, tmp_path)
    assert not reason, reason


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("number", range(_CHUNKS))
def test_two_thousand_random_kernels(tmp_path: Path, interpreter: Interpreter, number: int) -> None:
    """50 different ones each, on the virtual GPUs of several archs in turn. All differences of a chunk are
    found before it fails."""
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
