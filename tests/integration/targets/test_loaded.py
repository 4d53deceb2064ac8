"""Images whose segments, symbols or descriptors lead a GPU to other code than their sections show are refused."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import Any

import pytest

from aotforge.errors import PackError, ReleaseError
from aotforge.formats.elf import read_elf
from aotforge.pack.binary import bytes_source
from aotforge.pack.container import encode_container, read_index
from aotforge.pack.model import Compressor
from aotforge.pack.reader import OpenPack
from aotforge.pipeline.image_texts import check_texts
from aotforge.targets.amd import loaded
from aotforge.targets.amd.backend import AMD
from aotforge.verify.verdict import ImageTask
from aotforge.virtual_gpu.emulator.assembly import assemble, link
from tests.integration.virtual_gpu.emulator.handwritten import assembly_text
from tests.unit.verify.test_verdicts import RESOURCES

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


def two_kernels(data: bytearray) -> None:
    """The descriptor in .symtab is the kernel's, the one in .dynsym is not."""
    _, at = section(data, ".dynsym")
    for entry in range(at + 24, at + 72, 24):
        if data[entry + 4] & 15 == 1:
            add(data, entry + 8, "<Q", 64)


def same_names(data: bytearray) -> None:
    _, at = section(data, ".symtab")
    size = read_elf(bytes(data)).section(".symtab").size
    struct.pack_into("<I", data, at + size - 24, struct.unpack_from("<I", data, at + size - 48)[0])


def another_note(data: bytearray) -> None:
    (at,) = segments(data, 0x6474E551)
    (note,) = segments(data, 4)
    data[at : at + 56] = data[note : note + 56]


def shortened_note(data: bytearray) -> None:
    _, at = section(data, ".note")
    add(data, at + 4, "<I", -8)


def overlapping(data: bytearray) -> None:
    last = segments(data, 1)[-1]
    (text,) = segments(data, 1, 1)
    struct.pack_into("<QQ", data, last + 8, *struct.unpack_from("<QQ", data, text + 8))


def constructors(data: bytearray) -> None:
    _, at = section(data, ".dynamic")
    struct.pack_into("<Q", data, at, 7)  # DT_RELA


def relocations(data: bytearray) -> None:
    at, _ = section(data, ".comment")
    struct.pack_into("<I", data, at + 4, 4)


def writable(data: bytearray) -> None:
    (at,) = segments(data, 1, 1)
    add(data, at + 4, "<I", 2)


def large(data: bytearray) -> None:
    add(data, segments(data, 1)[-1] + 40, "<Q", 1 << 26)


def in_descriptor(offset: int, form: str, value: int) -> Change:
    def change(data: bytearray) -> None:
        add(data, section(data, ".rodata")[1] + offset, form, value)

    return change


LOADED = {
    "other code is loaded": (other_code, "its segments|loads? other"),
    "the entry is elsewhere": (in_descriptor(16, "<q", 256), "entry is 256 bytes from the kernel"),
    "more is executable": (more_code, "overlap"),
    "the tables of symbols differ": (two_kernels, "tables of symbols differ"),
    "a name is there twice": (same_names, "is not unique"),
    "two notes": (another_note, "program headers are of kinds"),
    "a second note in the section": (shortened_note, "several notes"),
    "segments overlap": (overlapping, "overlap"),
    "the loader relocates": (constructors, "dynamic section has tags"),
    "a section of relocations": (relocations, "sections are of kinds"),
    "code can be written": (writable, "executable segment"),
    "segments of megabytes": (large, "larger than the file"),
    "less LDS is stated": (in_descriptor(0, "<I", 64), "group_segment_fixed_size 0, its descriptor 64"),
    "clamping": (in_descriptor(48, "<I", 1 << 20), "has modes"),
    "traps on invalid operations": (in_descriptor(52, "<I", 1 << 24), "exceptions or traps"),
    "workgroups without LDS": (in_descriptor(44, "<I", 1 << 16), "other waves or prefetches"),
    "another ABI": (lambda data: add(data, 8, "<B", 1), "of versions"),
    "another arch": (
        lambda data: add(data, 48, "<I", 0x3F - 0x30),
        "its metadata state gfx908, its header 0x53f",
    ),
    "lanes of a wave": (in_descriptor(56, "<H", 1 << 10), "wavefront_size 64, its descriptor 32"),
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
        (".group_segment_fixed_size:", ".kind: init\n    .group_segment_fixed_size:", "metadata state"),
        (
            ".group_segment_fixed_size:",
            ".reqd_workgroup_size: [64, 1, 1]\n    .group_segment_fixed_size:",
            "metadata state",
        ),
        ('-amdhsa--gfx908"', '-amdhsa--gfx908:xnack+"', "its header 0x730"),
        ('-amdhsa--gfx908"', '-amdhsa--gfx908:sramecc-"', "its header 0x930"),
        ("  - 2\n...", "  - 9\n...", "of versions"),
        # HIP adds LDS for each of these, and replaces a pointer by a place in it
        (".address_space: global", ".address_space: local", "an argument .*local"),
        (
            "global_buffer\n        .address_space: global",
            "by_value\n        .address_space: local",
            "an argument",
        ),
        ("global_buffer", "dynamic_shared_pointer", "an argument .*dynamic_shared_pointer"),
        ("global_buffer\n        .address_space: global", "hidden_hostcall_buffer", "it prints or asserts"),
        # HIP refuses the code object
        (".address_space: global", ".address_space: global\n        .x: 1", "an argument .*'.x'"),
        ("global_buffer\n        .address_space: global", "hidden_heap_v1", "an argument .*hidden_heap_v1"),
    ],
)
def test_metadata_and_features_that_no_compiler_of_ours_writes_are_refused(
    before: str, after: str, expected: str
) -> None:
    """Image and text agree: a GPU would execute the kernel when it is loaded, or refuse its launches."""
    assert before in TEXT
    with pytest.raises(PackError, match=expected):
        read(link(assemble(TEXT.replace(before, after), ARCH)))


USER = ".amdhsa_user_sgpr_count 2"


@pytest.mark.parametrize(
    ("arch", "user", "ids", "accepted"),
    [
        ("gfx908", 3, 1, False),
        ("gfx1100", 15, 1, True),  # as LLVM fills up to 16, with the workgroup's ids
        ("gfx1100", 13, 3, True),
        ("gfx1100", 14, 1, False),
        ("gfx1201", 15, 1, False),
    ],
)
def test_scalars_that_nothing_sets(arch: str, user: int, ids: int, accepted: bool) -> None:
    """The emulator has zeros there, a GPU what another kernel has left."""
    text = assembly_text(BODY, arch, threads=64).replace(USER, f".amdhsa_user_sgpr_count {user}")
    text = text.replace(
        USER[:-1],
        "".join(f".amdhsa_system_sgpr_workgroup_id_{axis} 1\n\t\t" for axis in "yz"[: ids - 1]) + USER[:-1],
    )
    image = link(assemble(text, arch))
    if accepted:
        read(image)
    else:
        with pytest.raises(PackError, match=f"its descriptor has {user} user SGPRs, of which 2 are set"):
            read(image)


@pytest.mark.parametrize(("scratch", "enabled"), [(0, 1), (16, 0)])
@pytest.mark.parametrize("arch", ["gfx908", "gfx942", "gfx1100", "gfx1201"])
def test_scratch_that_a_gpu_does_not_set_up(arch: str, scratch: int, enabled: int) -> None:
    text = assembly_text(BODY, arch, threads=64, scratch=scratch)
    word = "enable_private_segment"
    if arch == "gfx908":
        word = "system_sgpr_private_segment_wavefront_offset"
    line = f".amdhsa_{word} {enabled}\n\t\t{USER}"
    assert "private_segment_w" not in text and "enable_private" not in text
    with pytest.raises(PackError, match=f"its descriptor has {scratch} bytes of scratch"):
        read(link(assemble(text.replace(USER, line), arch)))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (272, ""),
        (280, "280 bytes of arguments"),
        (8, "8 bytes of arguments"),
        (1 << 30, "1073741824 bytes of arguments"),
    ],
)
def test_arguments_that_no_parameter_needs(size: int, expected: str) -> None:
    """Each launch of the emulator has them in memory."""
    text = TEXT.replace("kernarg_size 16", f"kernarg_size {size}").replace(
        "kernarg_segment_size: 16", f"kernarg_segment_size: {size}"
    )
    image = link(assemble(text, ARCH))
    if not expected:
        read(image)
        return
    with pytest.raises(PackError, match=expected):
        read(image)


def test_arguments_at_places_far_away() -> None:
    text = TEXT.replace(".offset: 8", ".offset: 65536").replace("kernarg_size 16", "kernarg_size 65544")
    with pytest.raises(PackError, match="65544 bytes of arguments"):
        read(link(assemble(text.replace("kernarg_segment_size: 16", "kernarg_segment_size: 65544"), ARCH)))


@pytest.mark.parametrize(("scratch", "accepted"), [(1 << 17, True), ((1 << 17) + 16, False)])
def test_scratch_without_bound(scratch: int, accepted: bool) -> None:
    text = assembly_text(BODY, ARCH, threads=64, scratch=scratch)
    image = link(
        assemble(
            text.replace(USER, f".amdhsa_system_sgpr_private_segment_wavefront_offset 1\n\t\t{USER}"), ARCH
        )
    )
    if accepted:
        read(image)
        return
    with pytest.raises(PackError, match="131088 bytes of scratch"):
        read(image)


def test_code_without_bound(image: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """500 bytes of the emulator's memory are for one byte of code."""
    size = read_elf(image).section(".text").size
    monkeypatch.setattr(loaded, "_CODE_BYTES", size)
    read(image)
    monkeypatch.setattr(loaded, "_CODE_BYTES", size - 1)
    with pytest.raises(PackError, match=f"it has {size} bytes of code"):
        read(image)


def test_accumulators_begin_anywhere_on_archs_with_one_file_of_registers() -> None:
    text = assembly_text(BODY, "gfx90a", threads=64)
    read(link(assemble(text, "gfx90a")))
    with pytest.raises(PackError, match="other waves or prefetches"):
        read(
            link(
                assemble(
                    text.replace("\t.end_amdhsa_kernel", "\t\t.amdhsa_tg_split 1\n\t.end_amdhsa_kernel"),
                    "gfx90a",
                )
            )
        )
