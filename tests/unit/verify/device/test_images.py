"""Bits of a device beside the virtual GPU's, times, faults: with a driver in Python whose only kernel
adds."""

from __future__ import annotations

import ctypes
import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aotforge.errors import ExecutionError
from aotforge.targets.amd.driver import hip_devices
from aotforge.verify.device.messages import CheckImage, DeviceResult
from aotforge.verify.device.process import _shown, check
from aotforge.verify.invocation import LaunchCall
from tests.support.fake_hip import FakeHip, Kernel
from tests.support.families import PROJECT
from tests.unit.verify import test_device

Words = list[int]


class Virtual:
    """The virtual GPU: the same addition; `counts` are its instructions."""

    def __init__(self, kernel: Kernel, counts: Counter[str]) -> None:
        self.kernel, self.counts = kernel, counts

    def findings(self) -> list[str]:
        return []

    def run(self, call: LaunchCall) -> Counter[str]:
        if code := self.kernel([int(value) for value in call.launch.arguments.values()]):
            raise ExecutionError(f"fault {code}")
        return self.counts


def checked(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    device: Kernel,
    virtual: Kernel,
    *,
    counts: Counter[str] | None = None,
) -> tuple[DeviceResult, list[Any]]:
    fake = FakeHip(kernel=device)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: fake)
    task = dataclasses.replace(test_device.task(), arch="gfx908")
    monkeypatch.setattr("aotforge.verify.executors.backend_of_arch", lambda arch: _AnyImage())
    monkeypatch.setattr(
        "aotforge.verify.device.process._virtual",
        lambda request: (Virtual(virtual, counts or Counter(v_add_f32=1)), ""),
    )
    shown = _shown(hip_devices({})[0][0])
    assert shown.emulator == ""
    request = CheckImage(
        task=task,
        device=shown,
        library=None,
        kernels_root=PROJECT / "kernels",
        cache=tmp_path,
        not_compared="",
        shape={"n": 512},
        repeat=3,
    )
    sent: list[Any] = []
    return check(request, SimpleNamespace(send=sent.append)), sent  # type: ignore[arg-type]


class _AnyImage:
    symbol = "k"
    truncates_sums = False

    def read(self, binary: bytes) -> _AnyImage:
        return self


add = test_device.add


def with_one_changed(change: Callable[[Any], None]) -> Kernel:
    """The addition, and a change of the first result's bits."""

    def kernel(addresses: Words) -> int:
        code = add(addresses)
        change(np.ctypeslib.as_array((ctypes.c_uint32 * 1).from_address(addresses[2])))
        return code

    return kernel


def last_bit(first: Any) -> None:
    first[0] ^= 1


def test_equal_bits_are_counted_and_each_launch_is_announced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found, sent = checked(monkeypatch, tmp_path, add, add)
    assert (found.outcome, found.failure, found.not_compared) == ("passed", "", "")
    assert found.bits and found.bits.same == found.bits.elements > 1000 and not found.differs
    cases = sent
    assert cases[1::2] == [""] * (len(cases) // 2) and all(cases[::2])
    assert "timed call n=512" in cases
    assert [(time.operator, time.milliseconds) for time in found.times] == [("add", 0.25)]


@pytest.mark.parametrize("approximated", [(), ("v_exp_f32",)])
def test_a_last_bit_is_found_unless_instructions_are_approximated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, approximated: tuple[str, ...]
) -> None:
    counts = Counter(approximated or ("v_add_f32",))
    found, _ = checked(monkeypatch, tmp_path, with_one_changed(last_bit), add, counts=counts)
    assert found.outcome == "passed"  # it is within the bounds against float64
    assert found.approximated == approximated and found.differs == (not approximated)
    assert found.bits and found.bits.same < found.bits.elements
    assert ": out at (0,) is " in found.bits.first and " on the virtual GPU" in found.bits.first


def test_every_not_a_number_is_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def quiet(first: Any) -> None:
        first[0] = 0x7FC00000

    def other(first: Any) -> None:
        first[0] = 0x7FC00001

    found, _ = checked(monkeypatch, tmp_path, with_one_changed(quiet), with_one_changed(other))
    assert found.outcome == "failed"  # a sum of numbers is a number
    assert found.bits and found.bits.same == found.bits.elements


def test_a_fault_of_the_device_ends_the_image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, sent = checked(monkeypatch, tmp_path, lambda addresses: 700, add)
    assert (found.outcome, found.launches) == ("fault", 1) and "hipErrorIllegalAddress" in found.failure
    assert sent[-1]  # the launch did not end


def test_a_fault_of_the_virtual_gpu_is_no_fault_of_the_image(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found, _ = checked(monkeypatch, tmp_path, add, lambda addresses: 1)
    assert (found.outcome, found.bits) == ("passed", None)
    assert "fault 1" in found.not_compared


def test_a_fault_in_the_timed_call_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, _ = checked(monkeypatch, tmp_path, lambda a: 700 if a[3] == 512 else add(a), add)
    assert found.outcome == "fault" and found.failure.startswith("timed call: ")
