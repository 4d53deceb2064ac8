"""Images whose segments or descriptor lead a GPU to other code than their sections show are refused."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import Any

import pytest

from aotforge.errors import PackError, ReleaseError
from aotforge.pack.binary import bytes_source
from aotforge.pack.container import encode_container, read_index
from aotforge.pack.model import Compressor
from aotforge.pack.reader import OpenPack
from aotforge.pipeline.image_texts import check_texts
from aotforge.targets.amd.backend import AMD
from aotforge.verify.verdict import ImageTask
from tests.integration.vgpu.emulator.handwritten import assembly_text
from tests.unit.verify.test_verdicts import RESOURCES
from vgpu.elf import read_elf
from vgpu.emulator.assembly import assemble, link

pytestmark = pytest.mark.compiler

ARCH = "gfx908"
BODY = "s_nop 0\n" * 80
TEXT = assembly_text(BODY, ARCH, threads=64)
Change = Callable[[bytearray], None]


@pytest.fixture(scope="module")
def image() -> bytes:
    return link(assemble(TEXT, ARCH))


def changed(image: bytes, change: Change) -> bytes:
    data = bytearray(image)
    change(data)
    assert bytes(data) != image
    return bytes(data)


def segments(data: bytearray, kind: int, flag: int = 0) -> list[int]:
    """Places of the program headers of a kind that have a flag."""
    (start,) = struct.unpack_from("<Q", data, 32)
    (count,) = struct.unpack_from("<H", data, 56)
    places = [start + 56 * number for number in range(count)]
    heads = [(at, *struct.unpack_from("<II", data, at)) for at in places]
    return [at for at, found, flags in heads if found == kind and flags & flag == flag]


def section(data: bytearray, name: str) -> tuple[int, int]:
    """Place of a section's header, and of its content."""
    (start,) = struct.unpack_from("<Q", data, 40)
    elf = read_elf(bytes(data))
    number = [one.name for one in elf.sections].index(name)
    return start + 64 * number, elf.sections[number].offset


def add(data: bytearray, at: int, form: str, value: int) -> None:
    (old,) = struct.unpack_from(form, data, at)
    struct.pack_into(form, data, at, old + value)


def other_code(data: bytearray) -> None:
    (at,) = segments(data, 1, 1)
    _, address, _, size = struct.unpack_from("<QQQQ", data, at + 8)
    data += bytes((address - len(data)) % 4096)
    struct.pack_into("<Q", data, at + 8, len(data))
    data += struct.pack("<I", 0xBF810000) * (size // 4)


def more_code(data: bytearray) -> None:
    """Behind .text, of the dynamic section."""
    (at,) = segments(data, 1, 1)
    struct.pack_into("<QQ", data, at + 32, *[struct.unpack_from("<Q", data, at + 32)[0] + 64] * 2)


def dynamic_relocations(data: bytearray) -> None:
    _, at = section(data, ".dynamic")
    struct.pack_into("<Q", data, at, 7)  # DT_RELA


def relocations(data: bytearray) -> None:
    at, _ = section(data, ".comment")
    struct.pack_into("<I", data, at + 4, 4)


def writable(data: bytearray) -> None:
    (at,) = segments(data, 1, 1)
    add(data, at + 4, "<I", 2)


def in_descriptor(offset: int, form: str, value: int) -> Change:
    def change(data: bytearray) -> None:
        add(data, section(data, ".rodata")[1] + offset, form, value)

    return change


LOADED = {
    "other code is loaded": (other_code, "load other bytes than .text has"),
    "the entry is elsewhere": (in_descriptor(16, "<q", 256), "entry is 256 bytes from the kernel"),
    "more is executable": (more_code, "executable segment is not .text"),
    "the dynamic section relocates": (dynamic_relocations, "dynamic section has relocations"),
    "a section of relocations": (relocations, "relocations"),
    "code can be written": (writable, "executable segment can be written"),
    "less LDS is stated": (in_descriptor(0, "<I", 64), "group_segment_fixed_size 0, its descriptor 64"),
    "another ABI": (lambda data: add(data, 8, "<B", 1), "of versions"),
    "another arch": (
        lambda data: add(data, 48, "<I", 0x3F - 0x30),
        "its metadata state gfx908, its header 0x53f",
    ),
    "not a shared object": (lambda data: add(data, 16, "<H", -1), "ELF type is 2"),
}


def test_the_linkers_own_image_is_accepted(image: bytes) -> None:
    AMD.check_loaded(image)
    read(image)
    check_texts([task(image)], jobs=1)


def read(image: bytes) -> None:
    """The image, as the reader of packs takes it."""
    source = bytes_source("c", encode_container([image], Compressor(), file="c"))
    nothing: Any = None
    opened = OpenPack(
        name="p",
        signature=nothing,
        dispatch=nothing,
        indexes={"c": read_index(source)},
        sources={"c": source},
    )
    assert opened.images("c") == {hashlib.sha256(image).digest(): image}
    assert opened.image("c", 0) == image


@pytest.mark.parametrize("name", LOADED)
def test_a_pack_with_an_image_that_is_loaded_otherwise_is_refused(image: bytes, name: str) -> None:
    change, expected = LOADED[name]
    with pytest.raises(PackError, match=expected):
        read(changed(image, change))


def task(image: bytes, text: str = TEXT) -> ImageTask:
    return ImageTask(
        key="k", label="add/one", arch=ARCH, digest=hashlib.sha256(image).hexdigest(), binary=image, asm=text,
        resources=RESOURCES, folder="add", verifier_digest="", uses=(),
    )  # fmt: skip


def test_an_image_that_its_text_does_not_make_is_refused(image: bytes) -> None:
    """Bits that the virtual GPU does not read: the image's structure is right."""
    altered = changed(image, in_descriptor(4 * 7, "<I", 1))
    AMD.check_loaded(altered)
    with pytest.raises(ReleaseError, match=r"add/one .* it is another file"):
        check_texts([task(image), task(altered)], jobs=1)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (".incbin", "do not write"),
        ("s_no_such 1", "refuses the text"),
    ],
)
def test_a_text_that_is_not_assembled_is_refused(image: bytes, line: str, expected: str) -> None:
    with pytest.raises(ReleaseError, match=expected):
        check_texts([task(image, TEXT.replace("\ts_endpgm", f"\t{line}\n\ts_endpgm"))], jobs=1)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ('-amdhsa--gfx908"', '-amdhsa--gfx908:xnack+"', "its header 0x730"),
        ('-amdhsa--gfx908"', '-amdhsa--gfx908:sramecc-"', "its header 0x930"),
        ("  - 2\n...", "  - 9\n...", "of versions"),
        ("global_buffer\n        .address_space: global", "hidden_hostcall_buffer", "it prints or asserts"),
    ],
)
def test_metadata_and_features_that_no_compiler_of_ours_writes_are_refused(
    before: str, after: str, expected: str
) -> None:
    """Image and text agree: a GPU would execute the kernel when it is loaded, or refuse its launches."""
    assert before in TEXT
    with pytest.raises(PackError, match=expected):
        read(link(assemble(TEXT.replace(before, after), ARCH)))
