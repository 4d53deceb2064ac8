"""Lists of devices by driver libraries in Python."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import pytest

from aotforge.targets.amd.driver import hip_devices, hip_libraries
from tests.support.fake_hip import FakeHip


@pytest.mark.parametrize("recent", [True, False])
def test_a_device_is_read_from_the_properties_of_each_hip_release(
    monkeypatch: pytest.MonkeyPatch, recent: bool
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeHip(kernel=lambda addresses: 0, recent=recent))
    (device,), reason = hip_devices({})
    assert (device.vendor, device.arch, device.name, reason) == ("amd", "gfx908", "AMD Instinct MI100", "")
    assert str(device) == "AMD Instinct MI100, HIP 7.0.51831"


def test_libraries_are_tried_in_order_and_the_first_ones_reason_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rocm, packages = tmp_path / "rocm", tmp_path / "packages"
    sdk = packages / "_rocm_sdk_core" / "lib" / "libamdhip64.so.7"
    for path in (rocm / "lib" / "libamdhip64.so.6", sdk, packages / "torch" / "lib" / "libamdhip64.so"):
        path.parent.mkdir(parents=True)
        path.touch()
    monkeypatch.setattr(sys, "path", [str(packages)])
    names = [Path(one) for one in hip_libraries({"ROCM_PATH": str(rocm)})]
    assert names[:3] == [Path(f"libamdhip64.so.{major}") for major in (7, 6, 5)]
    found = [one.parent.parent.name for one in names[3:] if one.is_relative_to(tmp_path)]
    assert found == ["rocm", "_rocm_sdk_core", "torch"]
    tried: list[str] = []

    def missing(name: str) -> Any:
        tried.append(name)
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert hip_devices({"ROCM_PATH": str(rocm)}) == ((), "libamdhip64.so.7: cannot open shared object file")
    assert len(tried) >= 6
    assert hip_devices({}, "/own/libamdhip64.so") == (
        (),
        "/own/libamdhip64.so: cannot open shared object file",
    )
    assert tried[-1] == "/own/libamdhip64.so"
