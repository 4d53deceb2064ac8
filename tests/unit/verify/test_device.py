"""Images on a device: memory, arguments and faults, with a driver in Python whose only kernel adds; no GPU
takes part."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from aotforge.errors import VerifyError
from aotforge.plan.model import GridTerm, PlannedChoice, PlannedKernel, PlannedParameter
from aotforge.targets.installed import find_device
from aotforge.targets.nvidia.driver import cuda_devices
from aotforge.verify import check_image, executors
from aotforge.verify.interpreter.dispatch import Use
from aotforge.verify.verdict import ImageTask, Verdict
from aotforge.verify.verify_plan import verify_tasks
from tests.support.fake_cubin import fake_cubin
from tests.support.families import PROJECT
from tests.unit.verify.test_verdicts import RESOURCES

ILLEGAL_ADDRESS = 700


def _number(value: Any) -> int:
    return int(getattr(value, "value", value) or 0)


@dataclass
class FakeCuda:
    """`libcuda.so.1` as `ctypes.CDLL` gives it: one H100 that runs `kernel` on host memory."""

    kernel: Callable[[list[int]], int]
    blocks: dict[int, Any] = field(default_factory=dict)
    launches: list[tuple[Any, ...]] = field(default_factory=list)
    faulty: int = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("cu"):
            raise AttributeError(name)
        return lambda *arguments: self.faulty or 0

    def cuDeviceGetCount(self, out: Any) -> int:
        out._obj.value = 1
        return 0

    def cuDriverGetVersion(self, out: Any) -> int:
        out._obj.value = 13000
        return 0

    def cuDeviceGetName(self, out: Any, size: int, number: int) -> int:
        out.value = b"NVIDIA H100 80GB HBM3"
        return 0

    def cuDeviceGetAttribute(self, out: Any, attribute: int, number: int) -> int:
        out._obj.value = {75: 9, 76: 0, 97: 232448}[attribute]
        return 0

    def cuMemAlloc_v2(self, out: Any, size: Any) -> int:
        raw = (ctypes.c_char * (_number(size) + 256))()
        out._obj.value = -(-ctypes.addressof(raw) // 256) * 256
        self.blocks[out._obj.value] = raw
        return self.faulty

    def cuMemFree_v2(self, address: Any) -> int:
        del self.blocks[_number(address)]
        return self.faulty

    def cuMemcpyHtoD_v2(self, to: Any, source: Any, size: Any) -> int:
        ctypes.memmove(_number(to), _number(source), _number(size))
        return self.faulty

    cuMemcpyDtoH_v2 = cuMemcpyHtoD_v2

    def cuLaunchKernel(self, *arguments: Any) -> int:
        *shape, places, _ = arguments
        addresses = [ctypes.c_uint64.from_address(places[i]).value for i in range(len(places))]
        self.launches.append((tuple(shape[1:8]), addresses))
        self.faulty = self.kernel(addresses)
        return 0


def add(addresses: list[int]) -> int:
    """out = x + y on float32, of the kernel of `kernels/add`."""
    x, y, out, n, *_ = addresses
    a, b, c = (np.ctypeslib.as_array((ctypes.c_float * n).from_address(one)) for one in (x, y, out))
    c[:] = a + b
    return 0


def task() -> ImageTask:
    """An image of `add` for float32 that serves every call."""
    types = [("ptr", "x"), ("ptr", "y"), ("ptr", "out"), ("i64", "n")]
    binary = fake_cubin("k", [*(kind for kind, _ in types), "ptr", "ptr"])
    choice = PlannedChoice(job="job", predicates=(), grid=((GridTerm(value="n", divisor=512),),))
    kernel = PlannedKernel(
        family="add",
        name="add",
        operator="add",
        step=0,
        keys=("dtype",),
        parameters=tuple(
            PlannedParameter(name=n, type=t, value=n)  # type: ignore[arg-type]
            for t, n in types
        ),
        functionals=(),
    )
    return ImageTask(
        key="job", label="add.add:sm_90:0", arch="sm_90", digest="d", binary=binary, asm="", folder="add",
        resources=dataclasses.replace(RESOURCES, threads=128, dynamic_shared_bytes=2048), verifier_digest="v",
        uses=(Use(kernel=kernel, key=(1,), choices=(choice,), index=0),),
    )  # fmt: skip


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[list[int]], int]], FakeCuda]:
    """Plays a driver with a kernel for the rest of the test."""

    def play(kernel: Callable[[list[int]], int]) -> FakeCuda:
        fake = FakeCuda(kernel=kernel)
        monkeypatch.setattr(ctypes, "CDLL", lambda name: fake)
        executors._context.cache_clear()
        return fake

    return play


def verdict(tmp_path: Any) -> Verdict:
    return check_image.check_image(task(), kernels_root=PROJECT / "kernels", cache=tmp_path)


def test_a_correct_image_passes_on_the_device_that_the_verdict_names(cuda: Any, tmp_path: Any) -> None:
    fake = cuda(add)
    found = verdict(tmp_path)
    assert (found.outcome, found.failure, found.faithfulness) == ("passed", "", "hardware")
    assert found.device == "NVIDIA H100 80GB HBM3, CUDA 13.0"
    # all cases twice but the one with special numbers; all memory is free
    assert found.runs == len(fake.launches) == 2 * len(found.cases) - 1 and not fake.blocks
    for (gx, gy, gz, *block, shared), addresses in fake.launches:
        assert (gx, gy, gz) == (-(-addresses[3] // 512), 1, 1) and (block, shared) == ([128, 1, 1], 2048)
        assert addresses[4:] == [0, 0]
    skews = {addresses[0] % 64 for _, addresses in fake.launches}
    assert 0 in skews and len(skews) > 1  # aligned cases are aligned on the device, the others are not


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (lambda a: add([a[0], a[1], a[2], a[3] - 1]), "out"),  # the last element is not written
        (lambda a: add([a[0], a[1], a[2], a[3] + 1]), "elements outside of out were written"),
        (lambda a: add([a[0], a[0], a[2], a[3]]), "out"),
        (lambda a: add([a[0], a[1], a[0], a[3]]), "the input x was written"),
    ],
)
def test_a_wrong_image_fails(cuda: Any, tmp_path: Any, kernel: Any, text: str) -> None:
    cuda(kernel)
    found = verdict(tmp_path)
    assert found.outcome == "failed" and text in found.failure, found.failure


def test_after_a_fault_nothing_more_is_launched(cuda: Any, tmp_path: Any) -> None:
    fake = cuda(lambda addresses: ILLEGAL_ADDRESS)
    found = verdict(tmp_path)
    assert (found.outcome, found.faults, found.runs, len(fake.launches)) == ("failed", 1, 1, 1)
    assert "cuCtxSynchronize" in found.failure


@pytest.mark.parametrize(("device", "skipped"), [(False, False), (True, True)])
def test_without_a_gpu_images_are_not_executed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, device: bool, skipped: bool
) -> None:
    def missing(name: str) -> None:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert cuda_devices() == ((), "libcuda.so.1: cannot open shared object file")
    report = verify_tasks(
        [task()],
        "nvidia-sm_90",
        ("sm_90",),
        "smoke",
        kernels_root=PROJECT / "kernels",
        cache=tmp_path,
        device=device,
    )
    (found,) = report.verdicts
    assert (found.outcome, found.skipped, found.faithfulness) == ("unverified", skipped, "not executed")
    assert "not executed" in report.lines()[0] and "1 unverified" in report.lines()[-1]
    if skipped:
        report.require_passed()
    else:
        with pytest.raises(VerifyError, match="1 are unverified") as caught:
            report.require_passed()
        assert "--device" in caught.value.hint


def test_a_device_of_another_arch_does_not_serve(cuda: Any) -> None:
    cuda(add)
    assert find_device("sm_90")[0] is not None
    assert find_device("sm_80") == (None, "this machine has NVIDIA H100 80GB HBM3 (sm_90)")
