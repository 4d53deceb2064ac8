"""Finding HIP and asking it: every release that is played, and the real one where it is installed."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.attention import Problem, spy_pack
from tests.support.runtime import Driver, Objects
from tests.support.small_pack import write

NO_DEVICE, INVALID_DEVICE, NO_BINARY, SYMBOL_NOT_FOUND, INIT_FAILED = 100, 101, 209, 302, 303
DEBIAN = Path("/usr/lib/x86_64-linux-gnu/libamdhip64.so.5")


@pytest.mark.parametrize("major", [5, 6, 7])
def test_every_release(objects: Objects, spy_images: Path, major: int) -> None:
    devices = "gfx908:sramecc+:xnack-@104"
    with Driver(objects, spy_images, hip=major, HIP_DOUBLE_DEVICES=devices) as driver:
        assert driver.rc("check") == 0
        assert driver.rc(Problem().line("fwd")) == 0
        assert (driver.ask("arch"), driver.ask("cus"), driver.ask("experimental")) == (
            "100209080000",
            "104",
            "0",
        )
        recent = driver.ask("calls hipGetDevicePropertiesR0600")
        assert (recent != "0") == (major >= 6)


@pytest.mark.parametrize(
    ("device", "arch", "experimental"),
    [("gfx90a:sramecc+:xnack-", "1002090a0000", "0"), ("gfx1151", "100211510000", "1"), ("gfx1201", "100212010000", "0"),
     ("gfx1250", "100212500000", "1"), ("gfx11-generic", "0", "0"), ("", "0", "0")],
)  # fmt: skip
def test_chips(objects: Objects, spy_images: Path, device: str, arch: str, experimental: str) -> None:
    with Driver(objects, spy_images, HIP_DOUBLE_DEVICES=f"{device}@7") as driver:
        assert (driver.ask("arch"), driver.ask("experimental")) == (arch, experimental)
        assert driver.rc("check") == NO_BINARY
        assert driver.rc(Problem().line("fwd")) == NO_BINARY


def test_devices_have_modules_of_their_own(objects: Objects, tmp_path: Path) -> None:
    write(spy_pack("gfx908"), tmp_path / "amd-gfx908")
    write(spy_pack("gfx90a"), tmp_path / "amd-gfx90a")
    with Driver(objects, tmp_path, HIP_DOUBLE_DEVICES="gfx908,gfx90a,gfx908,gfx1100") as driver:
        assert driver.rc("check") == 0
        for device in range(4):
            assert driver.ask(f"stream {device}") == "ok"
        assert [driver.rc(f"check stream={i}") for i in range(4)] == [0, 0, 0, NO_BINARY]
        for device in (0, 1, 2, 1):  # device 0 is current all the time
            assert driver.rc(Problem(extra={"stream": device}).line("fwd")) == 0
        events = driver.record()
        loads = [(e["device"], e["target"][-6:]) for e in events if e["event"] == "load"]
        assert loads == [(0, "gfx908"), (1, "gfx90a"), (2, "gfx908")]
        assert [e["device"] for e in events if e["event"] == "launch"] == [0, 1, 2, 1]
        assert driver.rc(Problem().line("fwd")) == 0
        assert driver.launches()[-1]["device"] == 0  # the caller's current device is as it was
        assert driver.ask("device 2") == "ok"
        assert driver.rc(Problem().line("fwd")) == 0
        assert driver.launches()[-1]["device"] == 2


def test_the_copy_that_is_loaded_already_is_used(objects: Objects, spy_images: Path) -> None:
    """The loader would find release 7; the process has 6."""
    with Driver(objects, spy_images, hip=7) as driver:
        assert driver.ask(f"hip {objects.hip(6) / 'libamdhip64.so.6'}") == "ok"
        assert driver.rc(Problem().line("fwd")) == 0
        assert len(driver.launches()) == 1


@pytest.mark.parametrize("call", ["check", Problem().line("fwd"), Problem().line("bwd")])
def test_without_hip(objects: Objects, spy_images: Path, tmp_path: Path, call: str) -> None:
    """Files of HIP's names that are no libraries: whatever else is installed, the loader stops at them."""
    for major in (5, 6, 7):
        (tmp_path / f"libamdhip64.so.{major}").write_text("not a library")
    with Driver(objects, spy_images, hip=tmp_path, log="error") as driver:
        assert driver.rc(call) == INIT_FAILED
        assert (driver.ask("arch"), driver.ask("cus"), driver.ask("experimental")) == ("0", "0", "0")
    assert len(driver.log.splitlines()) == 4 and "HIP is not available" in driver.log


def test_a_hip_library_that_lacks_entry_points(objects: Objects, spy_images: Path, tmp_path: Path) -> None:
    subprocess.run(
        ["gcc", "-shared", "-x", "c", "/dev/null", "-o", tmp_path / "libamdhip64.so.7"], check=True
    )
    with Driver(objects, spy_images, hip=tmp_path, log="error") as driver:
        assert driver.rc("check") == SYMBOL_NOT_FOUND
    assert "lacks entry points" in driver.log


def test_the_real_library_without_a_device(objects: Objects, spy_images: Path, tmp_path: Path) -> None:
    """Debian's HIP 5.2.3: everything is looked up in it; there is no GPU, and it says so."""
    if not DEBIAN.exists():
        pytest.skip("libamdhip64-5 is not installed")
    with Driver(objects, spy_images, hip=tmp_path, log="error") as driver:
        # hipGetDevice of 5.2.3 names device 0 even where there is none; asking for its properties is refused then
        for call in ("check", Problem().line("fwd"), Problem().line("bwd")):
            assert driver.rc(call) in (NO_DEVICE, INVALID_DEVICE)
        assert (driver.ask("arch"), driver.ask("cus")) == ("0", "0")
    assert driver.log


def test_the_double_without_a_device(objects: Objects, spy_images: Path) -> None:
    with Driver(objects, spy_images, HIP_DOUBLE_DEVICES="none") as driver:
        assert driver.rc("check") == NO_DEVICE


FAILURES = {
    "hipStreamGetDevice": 0,
    "hipGetDevicePropertiesR0600": 0,
    "hipGetDevice": 0,
    "hipModuleLoadData": 0,
    "hipModuleGetFunction": 0,
    "hipModuleLaunchKernel": 0,
}


@pytest.mark.parametrize("call", FAILURES)
@pytest.mark.parametrize("verb", ["fwd", "bwd"])
def test_a_failure_of_hip_is_passed_on_and_the_next_call_succeeds(
    objects: Objects, spy_images: Path, call: str, verb: str
) -> None:
    with Driver(objects, spy_images, HIP_DOUBLE_FAIL=f"{call}:1:719", log="error") as driver:
        assert driver.rc(Problem().line(verb)) == 719
        assert driver.rc(Problem().line(verb)) == 0
        assert len(driver.launches()) == 1
    assert call in ("hipGetDevice",) or len(driver.log.splitlines()) == 1


def test_nothing_is_launched_when_a_later_step_does_not_load(objects: Objects, tmp_path: Path) -> None:
    pack = spy_pack()
    kernels = list(pack.kernels)
    backward = next(k for k in kernels if k.operator == "attn_bwd")
    second = replace(backward, name="spy.second", step=1)
    write(replace(pack, kernels=[*kernels, second]), tmp_path / "amd-gfx908")
    with Driver(objects, tmp_path, HIP_DOUBLE_FAIL="hipModuleGetFunction:2:500") as driver:
        assert driver.rc(Problem().line("bwd")) == 500
        assert driver.launches() == []
        assert driver.rc(Problem().line("bwd")) == 0
        assert len(driver.launches()) == 2
