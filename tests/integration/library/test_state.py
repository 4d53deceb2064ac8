"""What the library keeps between calls: devices, packs, the absence of a pack, open containers."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.attention import Problem, spy_pack
from tests.support.fake_hsaco import FakeKernel, fake_hsaco
from tests.support.runtime import Driver, Objects
from tests.support.small_pack import Choice, Kernel, SmallPack, files, seal, write

INVALID_DEVICE, INVALID_IMAGE, NO_BINARY, NOT_FOUND = 101, 200, 209, 301
CALL = "launch pick x=i32:0"


def pack(
    archs: Sequence[str] = ("gfx908",), symbols: Sequence[str] = ("k",), filler: bytes = b""
) -> SmallPack:
    """The value x chooses one of the symbols, each in an image of its own."""
    functionals: dict[tuple[str, tuple[int, ...]], Sequence[Choice]] = {
        (arch, (number,)): [
            Choice(image=fake_hsaco(arch, [FakeKernel(symbol=symbol, types=["i32"])], filler), symbol=symbol)
        ]
        for arch in archs
        for number, symbol in enumerate(symbols)
    }
    kernel = Kernel(
        name="e.pick", operator="pick", keys=("x",), parameters=[("i32", "x")], functionals=functionals
    )
    return SmallPack(archs=archs, operators={"pick": [("x", "i32")]}, kernels=[kernel])


def kernels(driver: Driver) -> list[str]:
    return [launch["kernel"] for launch in driver.launches()]


@pytest.mark.parametrize("number", [-1, -(2**31), 1024, 2**31 - 1])
def test_device_numbers_that_cannot_be(objects: Objects, tmp_path: Path, number: int) -> None:
    write(pack(), tmp_path / "amd-gfx908")
    with Driver(objects, tmp_path, HIP_DOUBLE_STREAM_DEVICE=str(number)) as driver:
        assert driver.rc("check") == INVALID_DEVICE
        assert driver.rc(CALL) == INVALID_DEVICE
        assert driver.send("arch") == "0"


def test_the_last_device_number(objects: Objects, tmp_path: Path) -> None:
    write(pack(), tmp_path / "amd-gfx908")
    with Driver(objects, tmp_path, HIP_DOUBLE_DEVICES=",".join(["gfx908"] * 1025)) as driver:
        assert driver.rc(CALL) == 0
        driver.send("clear")
        assert driver.send("stream 1023") == "ok" and driver.send("stream 1024") == "ok"
        assert driver.rc(f"{CALL} stream=0") == 0
        assert [one["device"] for one in driver.launches()] == [1023]
        assert driver.rc(f"{CALL} stream=1") == INVALID_DEVICE


def test_devices_of_one_arch_share_a_pack(objects: Objects, tmp_path: Path) -> None:
    """The second one does not read the folder, which may be gone."""
    write(spy_pack(), tmp_path / "amd-gfx908")
    with Driver(objects, tmp_path, HIP_DOUBLE_DEVICES="gfx908,gfx908") as driver:
        assert driver.rc("check") == 0
        shutil.rmtree(tmp_path / "amd-gfx908")
        assert driver.send("device 1") == "ok"
        assert driver.rc(Problem().line("fwd")) == 0


def test_an_arch_without_a_pack_does_not_hide_another(objects: Objects, tmp_path: Path) -> None:
    """An integrated GPU that no pack serves is queried first."""
    write(pack(), tmp_path / "amd-gfx908")
    with Driver(objects, tmp_path, HIP_DOUBLE_DEVICES="gfx1036,gfx908") as driver:
        assert driver.send("cus") == "120"  # HIP is loaded
        driver.send("stream 0")
        driver.send("stream 1")
        assert driver.rc(f"{CALL} stream=0") == NO_BINARY
        assert driver.rc(f"{CALL} stream=1") == 0


def test_absence_is_remembered_for_two_seconds(objects: Objects, tmp_path: Path) -> None:
    """A folder whose time of change stays the same, as on file systems with coarse times."""
    images = tmp_path / "images"
    images.mkdir()
    times = images.stat()
    with Driver(objects, images, log="error") as driver:
        assert driver.rc(CALL) == NO_BINARY
        write(pack(), images / "amd-gfx908")
        os.utime(images, ns=(times.st_atime_ns, times.st_mtime_ns))
        driver.send("later 3")
        assert driver.rc(CALL) == 0
    assert driver.log.count("no image pack serves gfx908") == 1


def test_a_remembered_absence_reads_and_reports_nothing(objects: Objects, tmp_path: Path) -> None:
    write(pack(["gfx90a"]), tmp_path / "amd-gfx90a")
    with Driver(objects, tmp_path, log="error") as driver:
        for _ in range(10):
            assert driver.rc(CALL) == NO_BINARY
    assert 1 <= driver.log.count("no image pack serves") < 10


@pytest.mark.parametrize("change", ["time", "folder"])
def test_absence_is_forgotten_when_the_folder_changes(objects: Objects, tmp_path: Path, change: str) -> None:
    (tmp_path / "one").mkdir()
    write(pack(), tmp_path / "two" / "amd-gfx908")
    times = (tmp_path / "one").stat()
    os.utime(tmp_path / "two", ns=(times.st_atime_ns, times.st_mtime_ns))
    with Driver(objects, tmp_path / "one") as driver:
        assert driver.rc(CALL) == NO_BINARY
        if change == "time":
            write(pack(), tmp_path / "one" / "amd-gfx908")
            os.utime(tmp_path / "one", ns=(times.st_atime_ns, times.st_mtime_ns + 1))
        else:
            driver.send(f"setenv AOTRITON_IMAGES_DIR {tmp_path / 'two'}")
        assert driver.rc(CALL) == 0


def test_the_first_pack_by_name_serves(objects: Objects, tmp_path: Path) -> None:
    for name in "hcagbfed":
        write(pack(symbols=[f"of_{name}"]), tmp_path / name)
    (tmp_path / "B").mkdir()  # before all of them, and not a pack
    with Driver(objects, tmp_path) as driver:
        assert driver.rc(CALL) == 0
        assert kernels(driver) == ["of_a"]


def test_hidden_folders_and_plain_files_are_not_packs(objects: Objects, tmp_path: Path) -> None:
    write(pack(), tmp_path / ".amd-gfx908")
    (tmp_path / "README").write_text("not a pack")
    (tmp_path / "empty").mkdir()
    with Driver(objects, tmp_path, log="error") as driver:
        assert driver.rc(CALL) == NO_BINARY
        (tmp_path / ".amd-gfx908").rename(tmp_path / "amd-gfx908")
        assert driver.rc(CALL) == 0
    assert driver.log.count("\n") == 1


def with_image_number(body: bytes, old: int, new: int) -> bytes:
    """The dispatch data with another image number in front of the symbol k0."""
    wanted = old.to_bytes(4, "little") + b"\x02k0"
    assert body.count(wanted) == 1
    return body.replace(wanted, new.to_bytes(4, "little") + b"\x02k0")


def test_an_image_number_beyond_the_last_one(objects: Objects, tmp_path: Path) -> None:
    made = pack(symbols=["k0", "k1"])
    count = 2
    body = files(made)["dispatch.aotd"][64:]
    at = body.index(b"\x02k0") - 4
    first = struct.unpack("<I", body[at : at + 4])[0]
    write(made, tmp_path / "amd-gfx908")
    for number in (count, count + 1, 2**32 - 1):
        (tmp_path / "amd-gfx908" / "dispatch.aotd").write_bytes(seal(with_image_number(body, first, number)))
        with Driver(objects, tmp_path, log="error") as driver:
            assert driver.rc("launch pick x=i32:1") == 0
            assert driver.rc(CALL) == INVALID_IMAGE
        assert "image index out of bounds" in driver.log


@pytest.mark.parametrize("grown", [True, False])
def test_a_container_that_changes_its_size_in_use(objects: Objects, tmp_path: Path, grown: bool) -> None:
    """Of the many containers of a pack, only the first few are held open."""
    many = pack(symbols=["k0", "k1"])
    (one,) = many.kernels
    names = [f"e.{number:03}" for number in range(80)]
    write(
        replace(
            many,
            operators={f"pick{name}": [("x", "i32")] for name in names},
            kernels=[replace(one, name=name, operator=f"pick{name}") for name in names],
        ),
        tmp_path / "amd-gfx908",
    )
    file = tmp_path / "amd-gfx908" / "e.079.aoti"
    right = file.read_bytes()
    with Driver(objects, tmp_path, log="error") as driver:
        assert driver.rc("launch picke.079 x=i32:1") == 0
        with file.open("r+b") as opened:
            if grown:
                opened.seek(0, os.SEEK_END)
                opened.write(b"\0")
            else:
                opened.truncate(len(right) - 1)
        assert driver.rc("launch picke.079 x=i32:0") == INVALID_IMAGE
        file.unlink()
        file.write_bytes(right)
        assert driver.rc("launch picke.079 x=i32:0") == 0
    assert "e.079.aoti: file changed while in use" in driver.log


def test_a_removed_folder_is_missing_and_not_absent(objects: Objects, tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    with Driver(objects, images) as driver:
        assert driver.rc(CALL) == NO_BINARY
        shutil.rmtree(images)
        assert driver.rc(CALL) == NOT_FOUND
        write(pack(), images / "amd-gfx908")
        assert driver.rc(CALL) == 0
