"""What the library prints by default: each reason of a refusal once, with what helps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.attention import Problem, Tensor, spy_pack
from tests.support.runtime import Driver, Objects
from tests.support.small_pack import write

INVALID_VALUE, NO_BINARY, NOT_FOUND, NOT_SUPPORTED = 1, 209, 301, 801
MALFORMED = Problem(extra={"L": Tensor(0x800000, (8, 47), 1)}).line("fwd")
UNCOVERED = Problem(head_dim=128).line("bwd")
MOST = 16


def lines(driver: Driver) -> list[str]:
    return driver.log.splitlines()


def test_each_reason_is_printed_once_with_what_helps(objects: Objects, spy_images: Path) -> None:
    """A caller that drops the result reads of an invalid argument somewhere else, if at all."""
    with Driver(objects, spy_images) as driver:
        for _ in range(3):
            assert driver.rc(MALFORMED) == INVALID_VALUE
            assert driver.rc(UNCOVERED) == NOT_SUPPORTED
        assert driver.rc(Problem().line("fwd")) == 0
    malformed, uncovered = lines(driver)
    assert malformed.startswith("aotriton: warn: attn_fwd: L: sizes are not ")
    assert "; ./dev compat " in malformed and malformed.endswith("(AOTRITON_LOG=off hides such lines)")
    assert uncovered.startswith("aotriton: warn: spy.attn_bwd on gfx908: no image for dtype=2 ")
    assert "width=128; ./dev build --arch " in uncovered and "AOTRITON_LOG" not in uncovered


def test_off_is_silent_and_other_levels_repeat(objects: Objects, spy_images: Path) -> None:
    counts = {}
    for level in ("off", "error", "warn", "info", "debug"):
        with Driver(objects, spy_images, log=level) as driver:
            for _ in range(3):
                assert driver.rc(MALFORMED) == INVALID_VALUE
        counts[level] = driver.log.count("aotriton: warn: attn_fwd: L: ")
        assert "./dev" not in driver.log
    assert counts == {"off": 0, "error": 0, "warn": 3, "info": 3, "debug": 3}


def test_an_unknown_level_is_as_none(objects: Objects, spy_images: Path) -> None:
    with Driver(objects, spy_images, log="verbose") as driver:
        assert driver.rc(MALFORMED) == INVALID_VALUE
    assert len(lines(driver)) == 1


def test_the_number_of_lines_is_bounded(objects: Objects, tmp_path: Path) -> None:
    write(spy_pack(widths=(1,)), tmp_path / "amd-gfx908")
    with Driver(objects, tmp_path) as driver:
        for width in [*range(2, MOST + 6)] * 2:
            assert driver.rc(Problem(head_dim=width).line("fwd")) == NOT_SUPPORTED
    assert len(lines(driver)) == MOST
    assert all(f"width={n + 2};" in line for n, line in enumerate(lines(driver)))
    assert ["AOTRITON_LOG=warn shows all" in line for line in lines(driver)] == [False] * (MOST - 1) + [True]


_STORM = """
import ctypes, sys, threading
library = ctypes.CDLL(sys.argv[1])
ready = threading.Barrier(8)

def refused():
    ready.wait()
    for device in range(90, 95):
        library.aotforge_launch(None, None, ctypes.c_size_t(0), device, None)

threads = [threading.Thread(target=refused) for _ in range(8)]
for one in threads:
    one.start()
for one in threads:
    one.join()
"""


def test_threads_report_each_reason_once(objects: Objects) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("AOTRITON")}
    done = subprocess.run(
        [sys.executable, "-c", _STORM, objects.library], env=env, capture_output=True, text=True, check=True
    )
    found = [line.partition(" is none of AOTFORGE_HIP")[0] for line in done.stderr.splitlines()]
    assert sorted(found) == [f"aotriton: warn: aotforge_launch: device {n}" for n in range(90, 95)]


@pytest.mark.parametrize(
    ("pack", "code", "reason"),
    [
        ("gfx90a", NO_BINARY, "no image pack serves gfx908"),
        ("gfx908", NOT_SUPPORTED, "does not serve all attention that PyTorch may request"),
        ("", NOT_FOUND, "images: No such file or directory"),
    ],
)
def test_a_gpu_that_pytorch_will_not_use(
    objects: Objects, tmp_path: Path, pack: str, code: int, reason: str
) -> None:
    """PyTorch calls check_gpu for each GPU and prints nothing: it computes attention in another way."""
    if pack:
        write(spy_pack(pack), tmp_path / "images" / f"amd-{pack}")
    with Driver(objects, tmp_path / "images", AOTFORGE_PARTIAL_PACK="") as driver:
        for _ in range(3):
            assert driver.rc("check") == code
    (line,) = lines(driver)
    assert line.startswith("aotriton: warn: PyTorch will not use this library on a GPU of this machine: ")
    assert reason in line and "; ./dev doctor " in line


def aotriton_pack(images: Path, name: str, *files: str) -> None:
    for file in files:
        (images / name / file).parent.mkdir(parents=True, exist_ok=True)
        (images / name / file).write_bytes(b"PK\3\4")


def test_packs_of_another_format_are_named(objects: Objects, tmp_path: Path) -> None:
    aotriton_pack(tmp_path, "amd-gfx90x", "__signature__", "flash/attn_fwd.zip")
    aotriton_pack(tmp_path, "amd-gfx91x", "__signature__", "flash/attn_fwd/FONLY__\uff0afp16@16.aks2")
    aotriton_pack(tmp_path, "amd-gfx92x", "readme")
    write(spy_pack("gfx90a"), tmp_path / "amd-gfx90a")
    (tmp_path / "amd-gfx90a" / "attn_fwd.zip").write_bytes(b"beside ours")
    with Driver(objects, tmp_path) as driver:
        assert driver.rc("check") == NO_BINARY
        assert driver.rc(Problem().line("fwd")) == NO_BINARY
    named = (
        "no image pack serves gfx908; of AOTriton's format, which this library does not read: "
        "amd-gfx90x (.zip), amd-gfx91x (.aks2)"
    )
    assert driver.log.count(named) == 1 and "amd-gfx92x" not in driver.log
    write(spy_pack(), tmp_path / "amd-gfx908")
    with Driver(objects, tmp_path) as driver:
        assert driver.rc(Problem().line("fwd")) == 0
    assert driver.log == ""


def test_a_gpu_that_is_used_and_questions_print_nothing(objects: Objects, spy_images: Path) -> None:
    with Driver(objects, spy_images, AOTFORGE_PARTIAL_PACK="1") as driver:
        assert driver.rc("check") == 0
        for question in ("arch", "cus", "experimental"):
            driver.send(question)
        assert driver.rc(Problem().line("fwd")) == 0
    assert driver.log == ""
