"""Launches: threads, grids, several callers at once, forked children, programs that fail."""

from __future__ import annotations

import os
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.integration.ttcpu.features import compiled
from tests.integration.vgpu.coverage.feature import Feature, out
from tests.support import cpu_launch as launch
from ttcpu.levels import host_level

pytestmark = pytest.mark.compiler
BLOCK, PROGRAMS = 64, 500
BODY = """
p = tl.program_id(0) + tl.num_programs(0) * (tl.program_id(1) + tl.num_programs(1) * tl.program_id(2))
i = p * BLOCK + tl.arange(0, BLOCK)
tl.device_assert(p != bad, "a bad program")
tl.store(o + i, tl.load(o + i) + i)
"""


class _Kernel:
    def __init__(self, folder: Path) -> None:
        feature = Feature(
            name="", group="", body=BODY, tensors={"o": out("i32")}, values={"bad": ("i32", -1)},
            reference=lambda: None, constants={"BLOCK": BLOCK}, options={"debug": True},
        )  # fmt: skip
        made = compiled(feature, host_level(), folder)
        self.loaded = launch.load(made.name, made.code, made.scratch, made.messages)

    def __call__(self, grid: tuple[int, int, int], bad: int = -1) -> Any:
        found = np.zeros(grid[0] * grid[1] * grid[2] * BLOCK, dtype=np.int32)
        launch.run(self.loaded, grid, struct.pack("<Qi4x", found.ctypes.data, bad))
        return found


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> _Kernel:
    return _Kernel(tmp_path_factory.mktemp("launch"))


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "thread_count", lambda: 4)


@pytest.mark.parametrize("grid", [(1, 1, 1), (3, 1, 1), (PROGRAMS, 1, 1), (5, 4, 3), (1, 1, 200)])
def test_every_program_runs_once(kernel: _Kernel, grid: tuple[int, int, int]) -> None:
    for _ in range(20):
        found = kernel(grid)
        assert np.array_equal(found, np.arange(found.size))


@pytest.mark.parametrize("grid", [(0, 1, 1), (7, 0, 2)])
def test_a_grid_of_no_programs_runs_nothing(kernel: _Kernel, grid: tuple[int, int, int]) -> None:
    assert kernel(grid).size == 0


@pytest.mark.parametrize("grid", [(2**31, 1, 1), (-1, 1, 1), (2**31 - 1, 2**31 - 1, 2**31 - 1)])
def test_an_impossible_grid_is_refused(kernel: _Kernel, grid: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="is not possible"):
        launch.run(kernel.loaded, grid, bytes(16))


def test_callers_at_once_share_the_threads(kernel: _Kernel) -> None:
    failures: list[BaseException] = []

    def call() -> None:
        try:
            for _ in range(50):
                assert np.array_equal(kernel((PROGRAMS, 1, 1)), np.arange(PROGRAMS * BLOCK))
        except BaseException as error:  # noqa: BLE001 - raised in the test's own thread
            failures.append(error)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failures


def test_a_forked_child_has_threads_of_its_own(kernel: _Kernel) -> None:
    kernel((PROGRAMS, 1, 1))
    child = os.fork()
    if child == 0:
        right = all(np.array_equal(kernel((PROGRAMS, 1, 1)), np.arange(PROGRAMS * BLOCK)) for _ in range(20))
        threads = len(list(Path("/proc/self/task").iterdir()))
        os._exit(0 if right and threads == 4 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_failed_assertion_names_its_line(kernel: _Kernel) -> None:
    with pytest.raises(RuntimeError, match=r"feature_\w+\.py:\d+: a bad program"):
        kernel((PROGRAMS, 1, 1), bad=PROGRAMS // 2)
    assert kernel((2, 1, 1)).size == 2 * BLOCK


def test_scratch_memory_that_cannot_be_had_is_an_error(kernel: _Kernel) -> None:
    hungry = launch.Loaded(
        library=kernel.loaded.library, address=kernel.loaded.address, scratch=1 << 60, messages=()
    )
    with pytest.raises(MemoryError, match=r"1152921504606846976 bytes"):
        launch.run(hungry, (1, 1, 1), struct.pack("<Qi4x", 0, -1))
