"""Images of a release are those that assembler and linker make of their texts."""

from __future__ import annotations

import hashlib

import pytest

from aotforge.errors import ReleaseError
from aotforge.pipeline.image_texts import check_texts
from aotforge.verify.verdict import ImageTask
from tests.integration.vgpu.emulator.handwritten import assembly_text
from tests.unit.verify.test_verdicts import RESOURCES
from vgpu.code_object import read_elf
from vgpu.emulator.assembly import assemble, link

pytestmark = pytest.mark.compiler

ARCH = "gfx908"
TEXT = assembly_text("s_nop 0\n" * 80, ARCH, threads=64)


@pytest.fixture(scope="module")
def image() -> bytes:
    return link(assemble(TEXT, ARCH))


def task(image: bytes, text: str = TEXT) -> ImageTask:
    return ImageTask(
        key="k", label="add/one", arch=ARCH, digest=hashlib.sha256(image).hexdigest(), binary=image, asm=text,
        resources=RESOURCES, folder="add", verifier_digest="", uses=(),
    )  # fmt: skip


def test_an_image_that_its_text_does_not_make_is_refused(image: bytes) -> None:
    """Bits that the virtual GPU does not read: the image's structure is right."""
    place = next(one.offset for one in read_elf(image).sections if one.name == ".rodata") + 4 * 7
    altered = image[:place] + bytes([image[place] ^ 1]) + image[place + 1 :]
    check_texts([task(image)], jobs=1)
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
