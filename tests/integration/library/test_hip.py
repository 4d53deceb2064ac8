"""Look-up of HIP and its entry points: every simulated release, and the real one where it is installed."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.attention import FP16, Problem, Tensor, spy_pack
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
        assert (driver.send("arch"), driver.send("cus"), driver.send("experimental")) == (
            "100209080000",
            "104",
            "0",
        )
        recent = driver.send("calls hipGetDevicePropertiesR0600")
        assert (recent != "0") == (major >= 6)


@pytest.mark.parametrize(
    ("device", "arch", "experimental"),
    [("gfx90a:sramecc+:xnack-", "1002090a0000", "0"), ("gfx1151", "100211510000", "1"),
        ("gfx1201", "100212010000", "0"),
     ("gfx1250", "100212500000", "1"), ("gfx11-generic", "0", "0"), ("", "0", "0")],
)  # fmt: skip
def test_archs(objects: Objects, spy_images: Path, device: str, arch: str, experimental: str) -> None:
    with Driver(objects, spy_images, HIP_DOUBLE_DEVICES=f"{device}@7") as driver:
        assert (driver.send("arch"), driver.send("experimental")) == (arch, experimental)
        assert driver.rc("check") == NO_BINARY
        assert driver.rc(Problem().line("fwd")) == NO_BINARY


def test_devices_have_modules_of_their_own(objects: Objects, tmp_path: Path) -> None:
    write(spy_pack("gfx908"), tmp_path / "amd-gfx908")
    write(spy_pack("gfx90a"), tmp_path / "amd-gfx90a")
    with Driver(objects, tmp_path, HIP_DOUBLE_DEVICES="gfx908,gfx90a,gfx908,gfx1100") as driver:
        assert driver.rc("check") == 0
        for device in range(4):
            assert driver.send(f"stream {device}") == "ok"
        assert [driver.rc(f"check stream={i}") for i in range(4)] == [0, 0, 0, NO_BINARY]
        for device in (0, 1, 2, 1):  # device 0 is current all the time
            assert driver.rc(Problem(extra={"stream": device}).line("fwd")) == 0
        events = driver.record()
        loads = [(e["device"], e["target"][-6:]) for e in events if e["event"] == "load"]
        assert loads == [(0, "gfx908"), (1, "gfx90a"), (2, "gfx908")]
        assert [e["device"] for e in events if e["event"] == "launch"] == [0, 1, 2, 1]
        assert driver.rc(Problem().line("fwd")) == 0
        assert driver.launches()[-1]["device"] == 0  # the caller's current device is as it was
        assert driver.send("device 2") == "ok"
        assert driver.rc(Problem().line("fwd")) == 0
        assert driver.launches()[-1]["device"] == 2


@pytest.mark.parametrize("order", ["01", "10", "0101", "1100"])
def test_a_device_without_a_pack_changes_nothing_for_another(
    objects: Objects, tmp_path: Path, order: str
) -> None:
    """An integrated GPU beside a card, in any order of calls."""
    write(spy_pack("gfx1100"), tmp_path / "amd-gfx110x")
    with Driver(objects, tmp_path, HIP_DOUBLE_DEVICES="gfx1036,gfx1100") as driver:
        driver.send("arch")  # loads HIP
        for device in (0, 1):
            assert driver.send(f"stream {device}") == "ok"
        for device in map(int, order):
            expected = 0 if device else NO_BINARY
            assert driver.rc(f"check stream={device}") == expected
            assert driver.rc(Problem(extra={"stream": device}).line("fwd")) == expected
        assert [launch["device"] for launch in driver.launches()] == [1] * order.count("1")


def test_the_copy_that_is_loaded_already_is_used(objects: Objects, spy_images: Path) -> None:
    """The loader would find release 7; the process has 6."""
    with Driver(objects, spy_images, hip=7) as driver:
        assert driver.send(f"hip {objects.hip(6) / 'libamdhip64.so.6'}") == "ok"
        assert driver.rc(Problem().line("fwd")) == 0
        assert len(driver.launches()) == 1


SHIMS = {
    # tracers define the launch alone
    "hipModuleLaunchKernel": """
    int hipModuleLaunchKernel(void* f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned
        g, unsigned h,
                              void* s, void** p, void** x) {
      typedef int Next(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
          void**, void**);
      Next* next = (Next*)dlsym(RTLD_NEXT, "hipModuleLaunchKernel");
      return next ? next(f, a, b, c, d, e, g, h, s, p, x) : 999;
    }""",
    "hipGetDevicePropertiesR0600": """
    int hipGetDevicePropertiesR0600(void* p, int d) {
      typedef int Next(void*, int);
      Next* next = (Next*)dlsym(RTLD_NEXT, "hipGetDevicePropertiesR0600");
      return next ? next(p, d) : 999;
    }""",
}


@pytest.mark.parametrize("in_scope", [False, True])
@pytest.mark.parametrize("name", SHIMS)
def test_a_shim_in_front_of_one_entry_point(
    objects: Objects, spy_images: Path, tmp_path: Path, name: str, in_scope: bool
) -> None:
    """HIP is found behind it, whether the process has HIP in its global scope or this library loads it."""
    (tmp_path / "shim.c").write_text("#define _GNU_SOURCE\n#include <dlfcn.h>\n" + SHIMS[name])
    subprocess.run(["gcc", "-shared", "-fPIC", "shim.c", "-o", "shim.so"], cwd=tmp_path, check=True)
    hip = f":{objects.hip(7) / 'libamdhip64.so.7'}" if in_scope else ""
    with Driver(objects, spy_images, LD_PRELOAD=f"{tmp_path / 'shim.so'}{hip}") as driver:
        assert driver.rc("check") == 0
        assert driver.rc(Problem().line("fwd")) == 0
        assert len(driver.launches()) == 1


def test_queries_of_a_known_arch_do_not_read_all_properties(objects: Objects, spy_images: Path) -> None:
    with Driver(objects, spy_images) as driver:
        assert driver.rc("check") == 0
        for _ in range(3):
            assert (driver.send("arch"), driver.send("experimental")) == ("100209080000", "0")
        assert driver.send("calls hipGetDevicePropertiesR0600") == "1"


REFUSED = {
    "malformed": Problem(extra={"Q": Tensor(0, (2, 4, 48, 64), FP16)}),
    "not covered": Problem(head_dim=72),
    "other params": Problem(extra={"version": 9}),
}


@pytest.mark.parametrize(("major", "device"), [(5, 0), (6, 0), (7, 0), (7, 1)])
def test_every_failed_call_sets_the_last_error(
    objects: Objects, spy_images: Path, major: int, device: int
) -> None:
    """Callers that drop the result see it at their next launch check. Device 1 is not current: what is put
    back comes later."""
    attention = [(problem, verb) for problem in REFUSED.values() for verb in ("fwd", "bwd", "aiter")]
    two = [
        (REFUSED["malformed"], verb)
        for verb in ("v2fwd", "v2bwd", "v2fused", "v2varfwd", "v2varbwd", "softmax")
    ]
    with Driver(objects, spy_images, hip=major, HIP_DOUBLE_DEVICES="gfx908,gfx908") as driver:
        assert driver.rc("check") == 0
        driver.send(f"stream {device}")
        lines = [replace(p, extra={**p.extra, "stream": 0}).line(verb) for p, verb in attention + two]
        for line in [*lines, "launch nothing stream=0"]:
            assert driver.send("lasterror") == "0"
            assert driver.rc(line) != 0
            assert driver.send("lasterror") == "1", line
        assert driver.rc(Problem(extra={"stream": 0}).line("fwd")) == 0
        assert driver.send("lasterror") == "0"


def test_the_last_error_of_the_first_call_of_all(objects: Objects, spy_images: Path) -> None:
    """The program has HIP; this library has not looked for it yet when it refuses the call."""
    with Driver(objects, spy_images) as driver:
        assert driver.send(f"hip {objects.hip(6) / 'libamdhip64.so.6'}") == "ok"
        assert driver.rc(REFUSED["malformed"].line("fwd")) == 1
        assert driver.send("lasterror") == "1"


def test_a_refused_call_does_not_load_hip(objects: Objects, spy_images: Path, tmp_path: Path) -> None:
    with Driver(objects, spy_images, hip=tmp_path, log="error") as driver:
        assert driver.rc(REFUSED["malformed"].line("fwd")) == 1
    assert driver.log == ""


def test_the_last_error_is_hips_own_where_it_has_one(objects: Objects, spy_images: Path) -> None:
    with Driver(objects, spy_images, HIP_DOUBLE_FAIL="hipModuleLaunchKernel:1:719") as driver:
        assert driver.rc(Problem().line("fwd")) == 719
        assert driver.send("lasterror") == "719"


def test_a_question_sets_no_error(objects: Objects, tmp_path: Path) -> None:
    write(spy_pack("gfx90a"), tmp_path / "amd-gfx90a")
    with Driver(objects, tmp_path) as driver:
        assert driver.rc("check") == NO_BINARY
        assert driver.send("lasterror") == "0"
        assert driver.rc(Problem().line("fwd")) == NO_BINARY
        assert driver.send("lasterror") == "1"


@pytest.mark.parametrize("call", ["check", Problem().line("fwd"), Problem().line("bwd")])
def test_without_hip(objects: Objects, spy_images: Path, tmp_path: Path, call: str) -> None:
    """Files of HIP's names that are no libraries: whatever else is installed, the loader stops at them."""
    for major in (5, 6, 7):
        (tmp_path / f"libamdhip64.so.{major}").write_text("not a library")
    with Driver(objects, spy_images, hip=tmp_path, log="error") as driver:
        assert driver.rc(call) == INIT_FAILED
        assert (driver.send("arch"), driver.send("cus"), driver.send("experimental")) == ("0", "0", "0")
    assert len(driver.log.splitlines()) == 4 and "HIP is not available" in driver.log


def test_a_hip_library_that_lacks_entry_points(objects: Objects, spy_images: Path, tmp_path: Path) -> None:
    subprocess.run(
        ["gcc", "-shared", "-x", "c", "/dev/null", "-o", tmp_path / "libamdhip64.so.7"], check=True
    )
    with Driver(objects, spy_images, hip=tmp_path, log="error") as driver:
        assert driver.rc("check") == SYMBOL_NOT_FOUND
    assert "lacks entry points" in driver.log


def test_the_real_library_without_a_device(objects: Objects, spy_images: Path, tmp_path: Path) -> None:
    """Debian's HIP 5.2.3: everything is looked up in it; there is no GPU, and it reports that."""
    if not DEBIAN.exists():
        pytest.skip("libamdhip64-5 is not installed")
    with Driver(objects, spy_images, hip=tmp_path, log="error") as driver:
        # hipGetDevice of 5.2.3 names device 0 even where there is none; asking for its properties is refused
        # then
        for call in ("check", Problem().line("fwd"), Problem().line("bwd")):
            assert driver.rc(call) in (NO_DEVICE, INVALID_DEVICE)
        assert (driver.send("arch"), driver.send("cus")) == ("0", "0")
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
