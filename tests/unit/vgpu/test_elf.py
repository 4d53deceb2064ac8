"""ELF files that claim more than they have."""

from __future__ import annotations

import struct

import pytest

from vgpu.code_object import CodeObjectError
from vgpu.elf import read_elf

_HEADER, _SEGMENT, _SECTION = 64, 56, 64


def elf(*segments: tuple[int, int, int, int]) -> bytes:
    """A file of loadable segments (offset, address, bytes in the file, bytes in memory) and a section of
    names."""
    at = _HEADER + _SEGMENT * len(segments)
    ident, form = b"\x7fELF\x02\x01\x01", "<16sHHIQQQIHHHHHH"
    header = struct.pack(
        form, ident, 3, 62, 1, 0, _HEADER, at, 0, _HEADER, _SEGMENT, len(segments), _SECTION, 1, 0
    )
    loads = b"".join(
        struct.pack("<IIQQQQQQ", 1, 4, offset, address, address, size, memory, 1)
        for offset, address, size, memory in segments
    )
    names = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, at + _SECTION, 1, 0, 0, 1, 0)
    return header + loads + names + b"\0"


def test_segments_are_loaded_in_their_places() -> None:
    data = elf((0, 0x100, 4, 8), (1, 0x10, 3, 3))
    memory = read_elf(data).memory
    assert (len(memory), memory[0x10:0x13], memory[0x100:]) == (0x108, b"ELF", b"\x7fELF" + bytes(4))


@pytest.mark.parametrize(
    ("segment", "message"),
    [
        ((0, 0, 1 << 27, 1 << 27), "larger than any kernel"),
        ((0, 1 << 27, 1, 1), "larger than any kernel"),
        ((0, 0, 5, 4), "more bytes in the file than in memory"),
        ((183, 0, 8, 8), "than the file"),
    ],
)
def test_segments_that_the_file_does_not_have_are_refused(
    segment: tuple[int, int, int, int], message: str
) -> None:
    with pytest.raises(CodeObjectError, match=message):
        read_elf(elf(segment))
