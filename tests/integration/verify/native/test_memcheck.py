"""Images of every family under Valgrind: no access outside of a tensor, and no result that depends on memory
that nothing has written."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from aotforge.base.architectures import Profile
from aotforge.errors import ExecutionError
from aotforge.plan.families import load_families
from aotforge.targets.backends import unexecutable
from aotforge.verify import executors
from aotforge.verify.check_image import check_image
from aotforge.verify.invocation import LaunchCall
from aotforge.verify.native import executor
from aotforge.verify.verdict import ImageTask
from aotforge.verify.verify_plan import image_tasks
from tests.integration.release.real import CACHE, ROOT
from tests.integration.verify.native.test_faults import ARCH, fault_tasks
from tests.support.families import plan_of
from tests.support.verified import compiled_images

KERNELS = ROOT / "kernels"
DRIVER = ROOT / "tests" / "fixtures" / "native" / "run_image.cpp"
FAMILIES = tuple(sorted(loaded.family.name for loaded in load_families(KERNELS)))
LAUNCHES, PROGRAMS = 3, 32
"""Launches of an image under Valgrind, and the most programs that one may have; others run as always."""
_FOUND = 99
_LACKS = unexecutable(ARCH) or ("" if shutil.which("valgrind") else "valgrind is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.compiler,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(_LACKS), reason=_LACKS),
]


class Memcheck(executor.NativeImage):
    """An image whose first small launches are executed by a program under Valgrind."""

    program: Path
    total = 0
    """Launches under Valgrind of all images."""

    def __init__(self, task: ImageTask) -> None:
        super().__init__(task)
        self._binary, self._launches = task.binary, 0

    def run(self, call: LaunchCall) -> Counter[str]:
        """Raises ExecutionError with Valgrind's errors."""
        use, launch, invocation = call.use, call.launch, call.invocation
        x, y, z = launch.grid
        if call.number or self._launches == LAUNCHES or not 0 < x * y * z <= PROGRAMS:
            return super().run(call)
        self._launches += 1
        type(self).total += 1
        with executor._copies(invocation, "end") as copies:
            data = struct.pack(
                "<6IQ", x, y, z, len(copies), len(use.kernel.parameters), 0, self._image.scratch
            )
            places = []
            for copy in copies:
                data += struct.pack("<QQ", copy.address, copy.extent)
                places.append(len(data))
                data += ctypes.string_at(copy.address, copy.extent)
            for parameter, value in zip(use.kernel.parameters, launch.arguments.values(), strict=True):
                is_address = parameter.type == "ptr"
                placed = executor._placed(value, copies) if is_address else value
                data += struct.pack(f"<{executor._CODES[parameter.type]}Q", placed, is_address)
            after = self._executed(data)
            for copy, place in zip(copies, places, strict=True):
                now = after[place : place + copy.extent]
                if copy._is_input:
                    assert now == ctypes.string_at(copy.address, copy.extent), copy.name
                else:
                    ctypes.memmove(copy.address, now, copy.extent)
                    copy.read_back()
        return Counter()

    def _executed(self, data: bytes) -> bytes:
        image, launch = (self.program.with_name(name) for name in ("image.so", "launch"))
        image.write_bytes(self._binary)
        launch.write_bytes(data)
        command = (
            "valgrind",
            "-q",
            f"--error-exitcode={_FOUND}",
            self.program,
            image,
            self._image.symbol,
            launch,
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ExecutionError(f"valgrind, exit code {done.returncode}: {done.stderr}")
        return launch.read_bytes()


@pytest.fixture(scope="module", autouse=True)
def memcheck(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compiles the program."""
    Memcheck.program = tmp_path_factory.mktemp("memcheck") / "run_image"
    words = (
        "g++",
        "-std=c++17",
        "-O1",
        "-g",
        "-Wall",
        "-Werror",
        DRIVER,
        "-o",
        Memcheck.program,
        "-ldl",
    )
    subprocess.run(words, check=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_image_of_every_kernel(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keep: dict[str, tuple[bool | int | str, ...]] = {
        f"{other}.dtype": () for other in FAMILIES if other != family
    }
    keep |= {
        "dtype": ("fp16",),
        "width": (32,),
        "flash_paged.width": (64,),
        "row": ("any",),
        "flash.dropout": (False,),
        "flash.mask": ("full",),
    }
    plan = plan_of(KERNELS, arch=ARCH, own=Profile(description="of a test", complete=False, keep=keep))
    images = compiled_images(plan, KERNELS)
    first = {task.label.split(":")[0]: task for task in reversed(image_tasks(plan, images, KERNELS))}
    monkeypatch.setattr(executors, "NativeImage", Memcheck)
    for kernel, task in first.items():
        before = Memcheck.total
        verdict = check_image(task, kernels_root=KERNELS, cache=CACHE)
        assert verdict.outcome == "passed", (kernel, verdict.failure)
        assert Memcheck.total > before, kernel


@pytest.mark.parametrize(
    ("fault", "found"),
    [("sound", ""), ("behind", "Invalid read of size"), ("beyond", "Invalid write of size")],
)
def test_a_fault_is_found(fault: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "NativeImage", Memcheck)
    verdict = check_image(fault_tasks(tmp_path)[fault], kernels_root=tmp_path, cache=CACHE)
    assert found in verdict.failure
    assert verdict.outcome == ("failed" if found else "passed")
