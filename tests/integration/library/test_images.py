"""Look-up of image packs and every kind of damage: a distinct error, one line with the file, and a retry."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from aotforge.errors import PackError
from aotforge.pack.dispatch import decode_dispatch
from tests.integration.library.test_named_launch import family
from tests.support.attention import Problem, spy_pack
from tests.support.runtime import Driver, Objects
from tests.support.small_pack import SmallPack, files, write

INVALID_IMAGE, NO_BINARY, OTHER_FORMAT, OTHER_INTERFACE, NOT_FOUND, SYSTEM, NOT_SUPPORTED = (
    200,
    209,
    218,
    300,
    301,
    304,
    801,
)
FORWARD = Problem().line("fwd")


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def other_format(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8] = 2
    path.write_bytes(data)


def other_container(path: Path) -> None:
    """A right container, but not the one that the dispatch data means."""
    shutil.copyfile(path.with_name("spy.attn_bwd.aoti"), path)


def other_interface(path: Path) -> None:
    pack = spy_pack()
    renamed = {name: [*values, ("novel", "i32")] for name, values in pack.operators.items()}
    path.write_bytes(files(replace(pack, operators=renamed))["dispatch.aotd"])


def become_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def become_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


Damage = Callable[[Path], object]
DAMAGES: dict[str, tuple[str, Damage, int]] = {
    "dispatch body flipped": ("dispatch.aotd", lambda p: flip(p, 200), INVALID_IMAGE),
    "dispatch magic flipped": ("dispatch.aotd", lambda p: flip(p, 0), INVALID_IMAGE),
    "dispatch truncated": ("dispatch.aotd", truncate, INVALID_IMAGE),
    "dispatch empty": ("dispatch.aotd", lambda p: p.write_bytes(b""), INVALID_IMAGE),
    "dispatch of another format": ("dispatch.aotd", other_format, OTHER_FORMAT),
    "dispatch of another interface": ("dispatch.aotd", other_interface, OTHER_INTERFACE),
    "dispatch is a folder": ("dispatch.aotd", become_folder, SYSTEM),
    "dispatch is a pipe": ("dispatch.aotd", become_pipe, SYSTEM),
    "container header flipped": ("spy.attn_fwd.aoti", lambda p: flip(p, 40), INVALID_IMAGE),
    "container index flipped": ("spy.attn_fwd.aoti", lambda p: flip(p, 130), INVALID_IMAGE),
    "container image flipped": ("spy.attn_fwd.aoti", lambda p: flip(p, -20), INVALID_IMAGE),
    "container truncated": ("spy.attn_fwd.aoti", truncate, INVALID_IMAGE),
    "container of another format": ("spy.attn_fwd.aoti", other_format, OTHER_FORMAT),
    "container replaced": ("spy.attn_fwd.aoti", other_container, INVALID_IMAGE),
    "container missing": ("spy.attn_fwd.aoti", lambda p: p.unlink(), NOT_FOUND),
}


@pytest.mark.parametrize("why", DAMAGES)
def test_damage_is_reported_and_can_be_repaired(objects: Objects, tmp_path: Path, why: str) -> None:
    name, damage, code = DAMAGES[why]
    pack = tmp_path / "images" / "amd-gfx908"
    write(spy_pack(), pack)
    damage(pack / name)
    with Driver(objects, tmp_path / "images", log="error") as driver:
        assert driver.rc(FORWARD) == code
        if name == "dispatch.aotd":
            assert driver.rc("check") == code
        if code != OTHER_INTERFACE:  # that pack is valid: it is kept, its other operators serve
            shutil.rmtree(pack)
            write(spy_pack(), pack)
            assert driver.rc(FORWARD) == 0
            assert len(driver.launches()) == 1
    lines = driver.log.splitlines()
    assert len(lines) == (2 if name == "dispatch.aotd" else 1)
    assert all(name in line and line.startswith("aotriton: error: ") for line in lines)
    if damage is other_format:
        assert all("is of format 2, this library reads format 1" in line for line in lines)


def other_dictionary(path: Path) -> None:
    """One bit of the stored dictionary, so that it still decodes to as many bytes."""
    data = bytearray(path.read_bytes())
    at, stored, size = struct.unpack_from("<QII", data, 40)
    sound = zstandard.decompress(data[at : at + stored])
    for place in range(at, at + stored):
        data[place] ^= 1
        with suppress(zstandard.ZstdError):
            other = zstandard.decompress(data[at : at + stored])
            if len(other) == size and other[: size // 2] != sound[: size // 2]:
                path.write_bytes(data)
                return
        data[place] ^= 1
    raise AssertionError("no such bit")


def test_another_dictionary_is_named_as_the_cause(objects: Objects, tmp_path: Path) -> None:
    """Header and index are authentic, so an image's own digest is what finds it."""
    pack = tmp_path / "images" / "amd-gfx908"
    image = next(iter(spy_pack().kernels[0].functionals.values()))[0].image
    write(replace(spy_pack(), dictionary=image), pack)
    sound = (pack / "spy.attn_fwd.aoti").read_bytes()
    other_dictionary(pack / "spy.attn_fwd.aoti")
    with Driver(objects, tmp_path / "images", log="error") as driver:
        assert driver.rc(FORWARD) == INVALID_IMAGE
        assert driver.rc(FORWARD) == INVALID_IMAGE
        (pack / "spy.attn_fwd.aoti").unlink()
        (pack / "spy.attn_fwd.aoti").write_bytes(sound)
        assert driver.rc(FORWARD) == 0
    assert driver.log.count("SHA-256 of the dictionary differs") == 2


def test_interfaces_are_both_named(objects: Objects, tmp_path: Path) -> None:
    from kernels.flash.operators import ATTN_FWD

    write(spy_pack(), tmp_path / "amd-gfx908")
    other_interface(tmp_path / "amd-gfx908" / "dispatch.aotd")
    with Driver(objects, tmp_path, log="error") as driver:
        assert driver.rc(FORWARD) == OTHER_INTERFACE
    theirs = ATTN_FWD.interface()[:-1] + ",novel:i32)"
    assert ATTN_FWD.interface_hash() in driver.log
    assert hashlib.sha256(theirs.encode()).hexdigest() in driver.log


def test_nothing_is_printed_when_it_is_off(objects: Objects, tmp_path: Path) -> None:
    with Driver(objects, tmp_path / "nowhere", log="off") as driver:
        assert driver.rc("check") == NOT_FOUND
    assert driver.log == ""


def test_missing_folder_then_installed(objects: Objects, tmp_path: Path) -> None:
    with Driver(objects, tmp_path / "images", log="error") as driver:
        assert driver.rc("check") == NOT_FOUND
        write(spy_pack("gfx90a"), tmp_path / "images" / "amd-gfx90a")
        assert driver.rc("check") == NO_BINARY
        assert driver.rc("check") == NO_BINARY
        write(spy_pack(), tmp_path / "images" / "amd-gfx908")
        assert driver.rc("check") == 0
    assert str(tmp_path / "images") in driver.log


def test_a_damaged_stranger_is_in_nobodys_way(objects: Objects, tmp_path: Path) -> None:
    write(spy_pack(), tmp_path / "amd-gfx908")
    for name in ("aaa", "zzz"):
        write(spy_pack("gfx90a"), tmp_path / name)
        truncate(tmp_path / name / "dispatch.aotd")
    (tmp_path / "README").write_text("not a pack")
    (tmp_path / "empty").mkdir()
    with Driver(objects, tmp_path) as driver:
        assert driver.rc("check") == 0
        assert driver.rc(FORWARD) == 0


def test_a_damaged_arch_name_is_not_taken_for_absence(objects: Objects, tmp_path: Path) -> None:
    write(spy_pack(), tmp_path / "amd-gfx908")
    flip(tmp_path / "amd-gfx908" / "dispatch.aotd", 64 + 2 + 1 + 5)
    with Driver(objects, tmp_path) as driver:
        assert driver.rc("check") == INVALID_IMAGE


def test_a_pack_without_attention_serves_no_attention(objects: Objects, tmp_path: Path) -> None:
    pack = spy_pack()
    others = SmallPack(
        archs=pack.archs,
        operators={"other": pack.operators["attn_fwd"]},
        kernels=[replace(k, operator="other") for k in pack.kernels if k.operator == "attn_fwd"],
    )
    write(others, tmp_path / "amd-gfx908")
    with Driver(objects, tmp_path) as driver:
        assert driver.rc("check") == NO_BINARY
        assert driver.rc(FORWARD) == NOT_SUPPORTED


def test_images_lie_beside_the_library_or_its_link(objects: Objects, tmp_path: Path) -> None:
    """As in PyTorch's wheels: the loader finds the library through a link, and the images are beside the
    link."""
    library = tmp_path / "lib" / objects.library.name
    library.parent.mkdir()
    library.symlink_to(objects.library)
    write(spy_pack(), tmp_path / "lib" / "aotriton.images" / "amd-gfx908")
    path = f"{library.parent}:{objects.hip(7)}"
    with Driver(objects, None, LD_LIBRARY_PATH=path) as driver:
        assert driver.rc("check") == 0
    with Driver(objects, tmp_path / "elsewhere", LD_LIBRARY_PATH=path) as driver:
        assert driver.rc("check") == NOT_FOUND  # AOTRITON_IMAGES_DIR wins


def test_a_folder_change_of_the_process(objects: Objects, tmp_path: Path) -> None:
    """A relative images folder is where it was when the pack was found, also for containers that are opened
    later."""
    pack = tmp_path / "images" / "amd-gfx908"
    write(spy_pack(), pack)
    truncate(pack / "spy.attn_fwd.aoti")
    (tmp_path / "elsewhere").mkdir()
    with Driver(objects, Path("images")) as driver:
        driver.send(f"chdir {tmp_path}")
        assert driver.rc(FORWARD) == INVALID_IMAGE
        driver.send(f"chdir {tmp_path / 'elsewhere'}")
        shutil.rmtree(pack)
        write(spy_pack(), pack)
        assert driver.rc(FORWARD) == 0


def other_images() -> SmallPack:
    """The same pack with another byte in every image, in the padding of the ELF identification."""
    pack = spy_pack()
    kernels = []
    for kernel in pack.kernels:
        changed = {
            key: [replace(c, image=c.image[:15] + b"\1" + c.image[16:]) for c in choices]
            for key, choices in kernel.functionals.items()
        }
        kernels.append(replace(kernel, functionals=changed))
    return replace(pack, kernels=kernels)


def loaded_image(driver: Driver, line: str) -> str:
    """Fingerprint of the image that a first call loads."""
    driver.send("clear")
    assert driver.rc(line) == 0
    (image,) = [event["image"] for event in driver.record() if event["event"] == "load"]
    return str(image)


@pytest.mark.parametrize("used_before", [False, True])
def test_a_process_keeps_the_pack_that_it_began_with(
    objects: Objects, tmp_path: Path, used_before: bool
) -> None:
    """A new release takes the folder's place, as package managers do it: new processes get it, running ones
    lose nothing."""
    images = tmp_path / "images"
    write(spy_pack(), images / "amd-gfx908")
    with Driver(objects, images, log="error") as driver:
        assert driver.rc("check") == 0
        if used_before:
            assert driver.rc(FORWARD) == 0
        write(other_images(), tmp_path / "new" / "amd-gfx908")
        (images / "amd-gfx908").rename(tmp_path / "old")
        (tmp_path / "new" / "amd-gfx908").rename(images / "amd-gfx908")
        shutil.rmtree(tmp_path / "old")
        assert driver.rc("check") == 0
        image = loaded_image(driver, Problem().line("bwd"))
        assert driver.rc(FORWARD) == 0
        with Driver(objects, images) as fresh:
            assert fresh.rc("check") == 0
            assert loaded_image(fresh, Problem().line("bwd")) != image
    assert driver.log == ""


def test_a_held_container_that_decays_is_let_go(objects: Objects, tmp_path: Path) -> None:
    """Written over in place: the damage is reported once, and the repaired file (another one) serves the next
    call."""
    pack = tmp_path / "amd-gfx908"
    write(spy_pack(), pack)
    with Driver(objects, tmp_path, log="error") as driver:
        assert driver.rc("check") == 0
        flip(pack / "spy.attn_fwd.aoti", -20)
        assert driver.rc(FORWARD) == INVALID_IMAGE
        (pack / "spy.attn_fwd.aoti").rename(tmp_path / "damaged")
        (pack / "spy.attn_fwd.aoti").write_bytes(files(spy_pack())["spy.attn_fwd.aoti"])
        assert driver.rc(FORWARD) == 0
    assert len(driver.log.splitlines()) == 1


def test_too_few_descriptors_is_a_passing_failure(objects: Objects, tmp_path: Path) -> None:
    """EMFILE while packs are read is an error of the system, not a damaged or missing pack."""
    write(spy_pack(), tmp_path / "amd-gfx908")
    with Driver(objects, tmp_path, log="error") as driver:
        assert driver.send("cus") == "120"  # HIP is loaded; from here on only pack files are opened
        for few in (3, 4):
            driver.send(f"descriptors {few}")
            assert driver.rc("check") == SYSTEM
        driver.send("descriptors 5")
        assert driver.rc("check") == 0  # one container is held: the backward pass'
        assert driver.rc(Problem().line("bwd")) == 0
        driver.send("descriptors 3")
        assert driver.rc(FORWARD) == SYSTEM
        driver.send("descriptors 100")
        assert driver.rc(FORWARD) == 0
    assert "Too many open files" in driver.log.splitlines()[0]


def test_descriptors_that_the_program_has_taken_over(objects: Objects, tmp_path: Path) -> None:
    """A daemon closes all descriptors and opens its own: they are neither read nor closed, and the call is
    served."""
    write(spy_pack(), tmp_path / "amd-gfx908")
    (tmp_path / "theirs").write_bytes(b"data of the program" * 1000)
    with Driver(objects, tmp_path, log="error") as driver:
        assert driver.rc("check") == 0
        replaced = driver.rc(f"replace {tmp_path / 'theirs'}")
        assert replaced > 0
        assert driver.rc(FORWARD) == 0
        assert driver.rc(Problem().line("bwd")) == 0
        assert driver.rc("open") == replaced
    assert driver.log == ""


def test_a_container_that_is_opened_again_is_held_again(objects: Objects, tmp_path: Path) -> None:
    """After the program has closed our descriptors, one call by the path is enough: the folder may go
    afterwards."""
    write(family(), tmp_path / "packs" / "amd-family")
    (tmp_path / "theirs").write_bytes(b"data of the program" * 1000)
    with Driver(objects, tmp_path / "packs") as driver:
        assert driver.rc("launch pick a=i64:0 b=i32:0") == 0
        assert driver.rc(f"replace {tmp_path / 'theirs'}") > 0
        assert driver.rc("launch pick a=i64:0 b=i32:7") == 0
        shutil.rmtree(tmp_path / "packs" / "amd-family")
        assert driver.rc("launch pick a=i64:-3 b=i32:5") == 0


def test_a_kernel_is_looked_up_once(objects: Objects, tmp_path: Path) -> None:
    write(spy_pack(), tmp_path / "amd-gfx908")
    with Driver(objects, tmp_path) as driver:
        assert [driver.rc(FORWARD) for _ in range(3)] == [0, 0, 0]
        assert driver.send("calls hipModuleGetFunction") == "1"


def test_a_library_of_a_relative_path_keeps_its_folder(objects: Objects, tmp_path: Path) -> None:
    """The loader knows it by a name relative to where the process was; the first call comes after a change of
    folder."""
    for name, pack in (("a", spy_pack()), ("b", other_images())):
        (tmp_path / name).mkdir()
        for file in objects.library.parent.glob("libaotriton_v2.so*"):
            shutil.copy(file, tmp_path / name / file.name)
        write(pack, tmp_path / name / "aotriton.images/amd-gfx908")
    path = f".:{objects.hip(7)}"
    with Driver(objects, None, log="info", folder=tmp_path / "a", LD_LIBRARY_PATH=path) as driver:
        driver.send(f"chdir {tmp_path / 'b'}")
        assert driver.rc(FORWARD) == 0
    assert f"served by {tmp_path}/a/aotriton.images/amd-gfx908" in driver.log


def test_log_lines_are_printable(objects: Objects, tmp_path: Path) -> None:
    """Control characters, DEL and C1, and marks of writing direction in a name do not reach a terminal; other
    UTF-8 does."""
    name = "amd-\x1b]0;x\x07\x7f\u009b31m\u202ee\u2066\u200bg\u00e4\u6f22-gfx908"
    write(spy_pack(), tmp_path / name)
    truncate(tmp_path / name / "dispatch.aotd")
    with Driver(objects, tmp_path, log="error") as driver:
        assert driver.rc("check") != 0
    assert "amd-?]0;x????31m???e??????gä漢-gfx908" in driver.log
    assert all(line.isprintable() for line in driver.log.splitlines())


def test_dispatch_data_is_bounded(objects: Objects, tmp_path: Path) -> None:
    """4 MiB take a fifth of a second; a release has some kilobytes."""
    pack = tmp_path / "amd-gfx908"
    write(spy_pack(), pack)
    data = bytearray((pack / "dispatch.aotd").read_bytes())
    data += bytes((4 << 20) + 1 - len(data))
    struct.pack_into("<Q", data, 16, len(data))
    data[32:64] = hashlib.sha256(data[64:]).digest()
    (pack / "dispatch.aotd").write_bytes(data)
    with Driver(objects, tmp_path, log="error") as driver:
        assert driver.rc("check") == INVALID_IMAGE
    assert "larger than 4 MiB" in driver.log
    with pytest.raises(PackError, match="4194305 bytes, 4194304 are allowed"):
        decode_dispatch(bytes(data), file="dispatch.aotd")
