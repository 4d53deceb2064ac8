"""Images whose text is found, and is theirs, are loaded, by a library of any checkout."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from ctypes import byref, c_void_p
from pathlib import Path

import numpy as np
import pytest

from aotforge.compile.model import KernelImage
from aotforge.errors import DecodeError
from aotforge.formats.tar_reader import FolderWriter, read_archive
from tests.integration.release.real import CACHE
from tests.integration.vgpu.emulator.handwritten import assembly_text
from tests.integration.vgpu.hip.conftest import Play
from tests.support.virtual_hip import Hip, linked
from vgpu.emulator.program import Emulator
from vgpu.hip.blob import program_file
from vgpu.hip.build_hip import VirtualHip, environment, exports, script
from vgpu.hip.prepare import MissingAssemblyError, find_assembly, prepare

pytestmark = pytest.mark.compiler

INVALID_IMAGE, NO_BINARY, FILE_NOT_FOUND, INIT_FAILED, NOT_SUPPORTED = 200, 209, 301, 303, 801


def load(hip: Hip, image: bytes) -> int:
    return int(hip.library.hipModuleLoadData(byref(c_void_p()), image))


def archive(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def test_texts_come_from_archives_and_folders(play: Play, add: KernelImage, tmp_path: Path) -> None:
    name = f"aotriton/share/aotriton/asm/amd-gfx908/{add.digest}.s"
    packed = archive(tmp_path / "asm.tar.gz", {"aotriton/other.s": b"", name: add.asm.encode()})
    assert load(play(texts=str(packed)), add.binary) == 0
    (tmp_path / "folder").mkdir()
    read_archive(packed, FolderWriter(root=tmp_path / "folder"))
    empty = tmp_path / "empty"
    empty.mkdir()
    assert load(play(texts=f"{empty}:{tmp_path / 'folder'}"), add.binary) == 0
    assert find_assembly(add.digest, [empty, packed]) == add.asm
    with pytest.raises(MissingAssemblyError):
        find_assembly("0" * 64, [empty, packed])


def test_an_unknown_image_is_refused_with_its_digest(play: Play, add: KernelImage, tmp_path: Path) -> None:
    hip = play(texts=str(tmp_path))
    assert load(hip, add.binary) == FILE_NOT_FOUND
    assert add.digest in hip.report() and str(tmp_path) in hip.report() and "AOTFORGE_ASM" in hip.report()
    hip = play(texts=str(tmp_path / "nothing.tar.gz"))
    assert load(hip, add.binary) == FILE_NOT_FOUND
    assert "nothing.tar.gz" in hip.report()


def test_an_altered_text_is_refused(play: Play, add: KernelImage, texts: Path, tmp_path: Path) -> None:
    assert load(play(texts=str(texts)), add.binary) == 0  # kept in the cache from now on
    altered = add.asm.replace("v_pk_add_f16", "v_pk_mul_f16")
    assert altered != add.asm
    (tmp_path / f"{add.digest}.s").write_text(altered)
    hip = play(texts=str(tmp_path))
    assert load(hip, add.binary) == INVALID_IMAGE
    assert "is not the image" in hip.report()
    (tmp_path / f"{add.digest}.s").write_bytes(b"\xff")
    with pytest.raises(DecodeError):
        find_assembly(add.digest, [tmp_path])


def test_an_altered_image_is_refused(play: Play, add: KernelImage, texts: Path) -> None:
    hip = play(texts=str(texts))
    flipped = bytearray(add.binary)
    flipped[flipped.index(b"add.kd") + 1] ^= 1
    assert load(hip, bytes(flipped)) == FILE_NOT_FOUND  # another digest: no text
    assert load(hip, b"\x7fELF" + bytes(200)) == INVALID_IMAGE
    assert load(hip, b"__CLANG_OFFLOAD_BUNDLE__" + bytes(200)) == INVALID_IMAGE


def test_files_cut_short_are_refused(play: Play, add: KernelImage, texts: Path, tmp_path: Path) -> None:
    hip = play(texts=str(texts))
    file = tmp_path / "cut.hsaco"
    for size in (0, 5, 63, 64, 200, len(add.binary) // 2, len(add.binary) - 1):
        file.write_bytes(add.binary[:size])
        assert hip.library.hipModuleLoad(byref(c_void_p()), str(file).encode()) == INVALID_IMAGE, size
    file.write_bytes(add.binary + b"behind")
    assert hip.library.hipModuleLoad(byref(c_void_p()), str(file).encode()) == 0
    assert hip.library.hipModuleLoad(byref(c_void_p()), b"/nothing/here") == FILE_NOT_FOUND


def test_damaged_program_files_are_made_again(add: KernelImage, texts: Path, tmp_path: Path) -> None:
    (tmp_path / "emulator-1").symlink_to(
        CACHE / "emulator-1"
    )  # the interpreter need not be compiled for this
    made = prepare(add.binary, "gfx908", places=[texts], cache=tmp_path)
    complete = made.program.read_bytes()
    damaged = bytearray(complete)
    damaged[len(complete) // 2] ^= 1
    for spoiled in (bytes(damaged), complete[:-1], b""):
        made.program.write_bytes(spoiled)
        assert prepare(add.binary, "gfx908", places=[texts], cache=tmp_path) == made
        assert made.program.read_bytes() == complete
    made.lines.write_text("[1]")
    assert prepare(add.binary, "gfx908", places=[texts], cache=tmp_path) == made


def test_every_process_makes_the_same_program_file(add: KernelImage) -> None:
    program = Emulator("gfx908", cache=CACHE).load(add.binary, add.asm)
    segments = [np.zeros(program.descriptor.kernarg_bytes, dtype=np.uint8) for _ in range(2)]
    files = []
    for segment in segments:  # each process has its arguments elsewhere
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("vgpu.hip.blob.np.zeros", lambda *_, kept=segment, **__: kept)
            files.append(program_file(program, add.digest))
    assert files[0] == files[1]


def test_an_image_for_another_arch(play: Play, add: KernelImage, texts: Path) -> None:
    hip = play("gfx90a,gfx1201", texts=str(texts))
    assert load(hip, add.binary) == NO_BINARY
    assert "for gfx908" in hip.report()
    hip.hipSetDevice(1)
    assert load(hip, add.binary) == NO_BINARY


@pytest.mark.parametrize(
    ("image", "device", "result"),
    [
        ("gfx942", "gfx942:sramecc+:xnack-", 0),
        ("gfx942:sramecc+:xnack-", "gfx942", 0),
        ("gfx942:sramecc+:xnack-", "gfx942:sramecc+:xnack+", NO_BINARY),
        ("gfx942:xnack+", "gfx942:sramecc+:xnack+", 0),
        ("gfx942:xnack+", "gfx942", NO_BINARY),
        ("gfx90a:xnack-", "gfx942", NO_BINARY),
    ],
)
def test_features_of_image_and_device_agree(
    play: Play, tmp_path: Path, image: str, device: str, result: int
) -> None:
    arch = image.split(":", maxsplit=1)[0]
    text = assembly_text("s_nop 0", arch, threads=64).replace(f"--{arch}", f"--{image}")
    binary = linked(text, arch, tmp_path)
    (tmp_path / f"{hashlib.sha256(binary).hexdigest()}.s").write_text(text)
    hip = play(device, texts=str(tmp_path))
    assert load(hip, binary) == result
    if result:
        assert f"the image is for {image}, the device is gfx942:sramecc+:xnack" in hip.report()


def test_without_its_python_side(
    play: Play, add: KernelImage, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hip = play(texts=str(texts), prepare="/nothing/here")
    assert load(hip, add.binary) == INIT_FAILED
    assert "/nothing/here" in hip.report() and "./dev python -m vgpu env" in hip.report()
    monkeypatch.setenv("AOTFORGE_VIRTUAL", "prepare=/bin/false")
    assert load(hip, add.binary) == INIT_FAILED
    monkeypatch.delenv("AOTFORGE_VIRTUAL")
    assert load(hip, add.binary) == 0


_ROOT = Path(__file__).parents[4]


def test_folders_from_the_environment_count_from_the_programs_own(
    virtual: VirtualHip, add: KernelImage, texts: Path
) -> None:
    here = texts.parent
    done = subprocess.run(
        [virtual.folder / "prepare", "prepare", "gfx908", "plain"],
        input=add.binary,
        cwd=here,
        env=os.environ
        | {
            "AOTFORGE_ASM": texts.name,
            "AOTFORGE_CACHE": os.path.relpath(CACHE, here),
            "PYTHONHOME": "/nothing",
        },
        capture_output=True,
        check=True,
    )
    answer = done.stdout.decode().splitlines()
    assert answer[0] == "ok"
    assert len(answer) == 4 and all(Path(path).is_absolute() and Path(path).exists() for path in answer[1:])


def test_a_checkout_may_have_any_name(tmp_path: Path) -> None:
    root = tmp_path / """it's "a":b `touch one` $(touch two) $HOME"""
    (tmp_path / "prepare").write_text(script(sys.executable, root))
    command = ["sh", str(tmp_path / "prepare"), "unknown"]
    gone = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert gone.returncode == 3 and str(root) in gone.stderr and "Next step" in gone.stderr
    root.mkdir()
    for name in ("aotforge", "vgpu", "ttcpu"):
        (root / name).symlink_to(_ROOT / name)
    there = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert there.returncode == 2 and "explain LINES FAULT" in there.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([root.name, "prepare"])


def test_a_shell_reads_the_lines_back(virtual: VirtualHip, tmp_path: Path) -> None:
    variables = environment(virtual, devices=["gfx908"], texts=[tmp_path], cache=tmp_path / "it's $HOME")
    script = exports(variables) + '\nprintf "%s\\n" "$AOTFORGE_CACHE" "$LD_LIBRARY_PATH"'
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=True, env={"LD_LIBRARY_PATH": "/old"}
    )
    assert done.stdout.splitlines() == [str(tmp_path / "it's $HOME"), f"{virtual.folder}:/old"]
