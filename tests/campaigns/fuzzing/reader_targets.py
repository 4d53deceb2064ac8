"""Fuzz targets of files: archives, documents, packs, images and assembly texts."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from aotforge.conformance.candidate import check_folder, open_candidate
from aotforge.deliver.page import read_page
from aotforge.deliver.pytorch.pins import pins_text
from aotforge.errors import AotforgeError, DecodeError, UnsupportedError
from aotforge.formats.tar_reader import FolderWriter, TarFacts, UnsafeArchiveError, read_archive
from aotforge.publish.upload import read_release_folder
from aotforge.release.compare import compare_releases
from aotforge.release.finalize import check_finalized_release
from aotforge.release.release import Release
from tests.campaigns.fuzzing.fuzz import Run, Target, scratch_folder
from tests.support.fake_hsaco import FakeKernel, fake_hsaco
from tests.support.hostile import member, refit, tar_bytes, zipped
from tests.support.publishing import make_release
from tests.support.readers import Readers, python_reads, sanitized_readers
from tests.support.small_pack import Choice, Kernel, SmallPack, container, files, seal
from vgpu.code_object import CodeObjectError, kernel_metadata
from vgpu.elf import read_elf
from vgpu.emulator.assembly import check_text
from vgpu.emulator.descriptor import read_descriptor
from vgpu.emulator.listing import parse_listing

_BOUNDS = TarFacts(sha256="", size=1 << 16, members=50)


def _sealed(data: bytes) -> bytes:
    """A tar with checksums that fit, so that deeper checks are reached."""
    made = bytearray(data)
    for start in range(0, len(made) - 511, 512):
        header = made[start : start + 512]
        if header[257:262] == b"ustar":
            header[148:156] = b" " * 8
            made[start + 148 : start + 156] = b"%06o\0 " % (sum(header) & 0o777777)
    return bytes(made)


@contextmanager
def release_archives() -> Iterator[tuple[Sequence[bytes], Run]]:
    """An archive: refused, or unpacked below its folder; the first byte: as a tar or as gzip."""
    tar = tar_bytes(
        (member("top/a", 600), b"x" * 600),
        (member("top/d/", kind=tarfile.DIRTYPE), b""),
        (member("top/d/l", kind=tarfile.SYMTYPE, link="b"), b""),
        (member("top/d/b", 1), b"y"),
    )

    with scratch_folder() as scratch:

        def run(data: bytes) -> None:
            mode, content = (data[0] if data else 0), data[1:]
            plain = _sealed(content) if mode & 1 else content
            with TemporaryDirectory(dir=scratch) as name:
                root = Path(name) / "root"
                root.mkdir()
                sink = FolderWriter(root=root)
                with suppress(UnsafeArchiveError):
                    read_archive([content if mode & 4 else zipped(plain)], sink, bounds=_BOUNDS)
                made = [path for path in Path(name).rglob("*") if path != root]
                assert all(path.is_relative_to(root) for path in made)
                assert all(path.resolve().is_relative_to(root) for path in made)

        yield [bytes([mode]) + (zipped(tar) if mode & 4 else tar) for mode in (0, 1, 2, 4)], run


_DOCUMENTS = ("MANIFEST.json", "SHA256SUMS", "SHA256SUMS.uncompressed", "release.json", "resources.json")
_RELEASE = {
    "format": 1,
    "release": "0.11.2b-r1",
    "origin": {
        "release": "0.11.2b-r1",
        "commit": "0" * 40,
        "archs": ["gfx908"],
        "profile": "core",
        "platforms": ["linux"],
        "epoch": 0,
        "tools": {"python": "3.11", "compiler": "gcc", "zstd": ["a", "b"], "zlib": "1.3"}
        | {"executor": "local", "roots": []},
    },
    "toolchain": {"triton_version": "3.9.0", "triton_digest": "", "llvm_revision": "", "environment": []},
    "files": [],
    "packs": [{"name": "amd-gfx908", "archs": ["gfx908"], "profile": "core", "images": []}],
}
_COUNTS = (
    *("registers", "accumulation_registers", "scalar_registers", "spilled_registers", "threads"),
    *("spilled_scalar_registers", "shared_bytes", "scratch_bytes", "occupancy"),
)
_RESOURCES = {"images": [{"digest": "1" * 64, "labels": ["x"], **dict.fromkeys(_COUNTS, 1)}]}


def _read_documents(release: Path, work: Path) -> None:
    """Every reader of a release folder."""
    readers: tuple[Callable[[], object], ...] = (
        lambda: check_finalized_release(release, None),
        lambda: Release.open(release).packs(),
        lambda: check_folder(open_candidate(release, work), ("7.1",)),
        lambda: read_release_folder(release),
        lambda: pins_text(Release.open(release), base_url="", commit="", environment_url=True),
        lambda: read_page(release, base_url="http://x"),
        lambda: compare_releases(release, release),
    )
    try:
        for read in readers:
            with suppress(AotforgeError):
                read()
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def release_documents() -> Iterator[tuple[Sequence[bytes], Run]]:
    """A document of a release with sums that fit: a named error of each reader, or values. The first byte
    chooses the document."""
    with scratch_folder() as scratch:
        good = make_release(scratch / "0.11.2b-r1", rocm=("7.1",), packs=("amd-gfx908",), size=10)
        (good / "release.json").write_text(json.dumps(_RELEASE))
        manifest = json.loads((good / "MANIFEST.json").read_bytes())
        listed = [{"name": "amd-gfx908", "images": [{"digest": "1" * 64}]}]
        (good / "MANIFEST.json").write_text(json.dumps({**manifest, "packs": listed}))
        asm = good / "aotriton-0.11.2b-r1-asm-amd-gfx908.tar.gz"
        below = "aotriton/share/aotriton/asm/amd-gfx908/resources.json"

        def put_resources(data: bytes) -> None:
            asm.write_bytes(zipped(tar_bytes((member(below, len(data)), data))))

        put_resources(json.dumps(_RESOURCES).encode())
        refit(good)
        right = {path.name: path.read_bytes() for path in good.iterdir()}
        right["resources.json"] = json.dumps(_RESOURCES).encode()

        def run(data: bytes) -> None:
            name = _DOCUMENTS[(data[0] if data else 0) % len(_DOCUMENTS)]
            for other, content in right.items():
                if other != "resources.json":
                    (good / other).write_bytes(content)
            if name == "resources.json":
                put_resources(data[1:])
            else:
                (good / name).write_bytes(data[1:])
            if not name.startswith("SHA256SUMS"):
                refit(good)
            _read_documents(good, scratch / "work")

        yield [bytes([number]) + right[name] for number, name in enumerate(_DOCUMENTS)], run


_IMAGE = fake_hsaco("gfx908", [FakeKernel(symbol="one", types=["i64"])])
_CONDITIONS = ((0, ["p"], 16, 0), (1, ["i"], -5, 7), (0, ["i", "u"], 8, 0), (1, ["l"] * 4, 0, 9))
_CHOICE = Choice(
    image=_IMAGE,
    symbol="one",
    lds=64,
    predicates=_CONDITIONS,
    grid=((("i", 4),), (("l", 1), ("u", 2)), ()),
)
_PACK = SmallPack(
    archs=["gfx908", "gfx90a"],
    operators={"opA": [("p", "ptr"), ("i", "i32"), ("l", "i64"), ("u", "u64"), ("f", "f32")]},
    kernels=[
        Kernel(
            name="e.one",
            operator="opA",
            keys=("i", "l"),
            ladder=True,
            parameters=[("ptr", "p"), ("i64", "i")],
            nulls=2,
            functionals={("gfx908", (-1, 2)): [_CHOICE], ("gfx90a", (0, 0)): [_CHOICE]},
        )
    ],
    gates=[("0.13", "gfx908")],
)


@contextmanager
def packs_by_both_readers() -> Iterator[tuple[Sequence[bytes], Run]]:
    """Dispatch data and containers: both readers accept, or both refuse; C++ under ASan and UBSan. The first
    byte chooses the kind."""
    with scratch_folder() as scratch:
        readers = Readers(sanitized_readers().program("readers"), scratch, sanitized=True)

        def run(data: bytes) -> None:
            kind = "dispatch" if not data or data[0] % 2 == 0 else "container"
            content = data[1:]
            made = seal(content) if kind == "dispatch" else _with_digest(content)
            answer, reason = readers(kind, made), python_reads(kind, made)
            assert answer.startswith("refused " if reason else "accepted "), (answer, reason)

        dispatch = files(_PACK)["dispatch.aotd"][64:]
        boxes = [container([_IMAGE, _IMAGE + b"\0"], dictionary) for dictionary in (b"", _IMAGE * 2)]
        try:
            yield [b"\0" + dispatch, *(b"\1" + box for box in boxes)], run
        finally:
            with suppress(AssertionError, OSError):
                readers.close()


def _with_digest(data: bytes) -> bytes:
    """A container with its size and index digest put right."""
    if len(data) < 128:
        return data
    (count,) = struct.unpack_from("<I", data, 24)
    index = data[128 : 128 + 64 * min(count, 1000)]
    return (
        data[:16] + struct.pack("<Q", len(data)) + data[24:96] + hashlib.sha256(index).digest() + data[128:]
    )


@contextmanager
def code_objects() -> Iterator[tuple[Sequence[bytes], Run]]:
    """An image: values or a named error, by every reader of its parts."""

    def run(data: bytes) -> None:
        with suppress(CodeObjectError):
            kernel_metadata(data)
        with suppress(CodeObjectError, DecodeError, UnsupportedError):
            read_descriptor(read_elf(data), "one")

    yield [_IMAGE], run


@contextmanager
def assembly_texts() -> Iterator[tuple[Sequence[bytes], Run]]:
    """A text: decoded or a named error; what is passed to the assembler has no directive that reads a
    file."""
    from tests.unit.vgpu.emulator.test_decoding import CHECKED

    def run(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        with suppress(DecodeError, UnsupportedError):
            parse_listing(text)
        with suppress(DecodeError):
            check_text(text)
            words = [line.split()[0].lower() for line in text.replace("\r", "\n").split("\n") if line.split()]
            assert not {".include", ".incbin", ".macro", ".rept", ".irp", ".org"} & set(words)

    yield [CHECKED.encode()], run


_DOCUMENT_READERS = (
    *("release/release", "release/contents", "release/compare", "release/layout", "release/release_json"),
    *("formats/sums", "conformance/candidate", "publish/release_dir", "deliver/page", "pytorch/pins"),
)
_PACK_READERS = ("aotforge/pack/", "runtime/src/dispatch", "runtime/src/container", "runtime/src/zstd_frame")
_ASSEMBLY = ("emulator/listing", "emulator/assembly", "emulator/operands", "emulator/modifiers")
_IMAGES = ("vgpu/elf", "vgpu/code_object", "emulator/descriptor")

READER_TARGETS: Mapping[str, Target] = {
    "release archives": Target(open=release_archives, modules=("formats/tar_reader",)),
    "release documents": Target(open=release_documents, modules=_DOCUMENT_READERS),
    "packs, both readers": Target(open=packs_by_both_readers, modules=_PACK_READERS, compiled=True),
    "code objects": Target(open=code_objects, modules=_IMAGES),
    "assembly texts": Target(open=assembly_texts, modules=_ASSEMBLY),
}
