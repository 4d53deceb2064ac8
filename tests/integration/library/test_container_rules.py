"""Each rule of a container's header and index refuses bytes that break it alone, in both readers; each limit
itself is accepted."""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
import zstandard

from tests.support.readers import Readers, python_reads
from tests.support.small_pack import container

DICE = random.Random(5)
DICTIONARY = DICE.randbytes(700)
IMAGES = [DICE.randbytes(200) + DICTIONARY[at:] for at in range(3)]
"""Frames that cannot be decoded without the dictionary."""
RIGHT = container(IMAGES, DICTIONARY)
PLAIN = container(IMAGES, b"")
MIB = 1 << 20


def changed(offset: int, code: str, *values: int, data: bytes = RIGHT) -> bytes:
    """A container with one field of its header changed."""
    new = bytearray(data)
    struct.pack_into(code, new, offset, *values)
    return bytes(new)


def entry(number: int, offset: int, code: str, *values: int | bytes) -> bytes:
    """A container with one field of an index entry changed, and the index digest put right."""
    new = bytearray(RIGHT)
    struct.pack_into(code, new, 128 + 64 * number + offset, *values)
    return sealed(new)


def sealed(new: bytearray) -> bytes:
    """With the digest of the three entries."""
    new[96:128] = hashlib.sha256(new[128 : 128 + 3 * 64]).digest()
    return bytes(new)


def swapped() -> bytes:
    """Entries 0 and 1 exchanged, with their frames' places kept in order."""
    new = bytearray(RIGHT)
    new[128:160], new[192:224] = new[192:224], new[128:160]
    return sealed(new)


def longer_dictionary(by: int) -> bytes:
    """The stored dictionary and everything behind it moved by `by` bytes; its frame is followed by zeros."""
    count, stored, decoded = 3, *struct.unpack_from("<II", RIGHT, 48)
    new = bytearray(RIGHT)
    end = 128 + 64 * count + stored
    new[end:end] = bytes(by)
    struct.pack_into("<Q", new, 16, len(new))
    struct.pack_into("<IIQ", new, 48, stored + by, decoded, end + by)
    for number in range(count):
        (at,) = struct.unpack_from("<Q", new, 128 + 64 * number + 32)
        struct.pack_into("<Q", new, 128 + 64 * number + 32, at + by)
    return sealed(new)


def frame(number: int) -> tuple[int, int]:
    """Offset and size of an image's frame."""
    at, stored = struct.unpack_from("<QI", RIGHT, 128 + 64 * number + 32)
    return at, stored


def exchanged_frames() -> bytes:
    """The frames of images 0 and 1 in the other order; each is where its entry states."""
    (first, size), (second, other) = frame(0), frame(1)
    new = bytearray(RIGHT)
    new[first : second + other] = RIGHT[second : second + other] + RIGHT[first : first + size]
    struct.pack_into("<Q", new, 128 + 32, first + other)
    struct.pack_into("<Q", new, 128 + 64 + 32, first)
    return sealed(new)


STORED = struct.unpack_from("<I", RIGHT, 48)[0]
# rule to the bytes that break it alone, and the reasons of the C++ reader and of Python's
RULES: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "fewer bytes than a header": (lambda: RIGHT[:127], "truncated", "are fewer than a container's header"),
    "another magic": (lambda: changed(0, "<B", 66), "magic is not that of a container",
        "does not start with a container's magic"),
    "another format": (lambda: changed(8, "<I", 99), "format version is not", "image pack format 99"),
    "another header size": (lambda: changed(12, "<I", 129), "header size is not 128",
        "has a header that format 1 does not allow"),
    "another file size": (lambda: changed(16, "<Q", len(RIGHT) + 1), "file size differs",
        "its header states"),
    "no images": (lambda: changed(24, "<I", 0), "image count out of bounds", "a header for 0 images"),
    "65,537 images": (lambda: changed(24, "<I", 65537), "image count out of bounds",
        "a header for 65537 images"),
    "a reserved field": (lambda: changed(28, "<I", 1), "reserved field is not zero",
        "has a header that format 1 does not allow"),
    "another index offset": (lambda: changed(32, "<Q", 192), "index offset is not 128",
        "has a header that format 1 does not allow"),
    "another dictionary offset": (lambda: changed(40, "<Q", 128 + 3 * 64 + 1), "dictionary offset",
        "has offsets that format 1 does not allow"),
    "an index that is longer than the file": (
        lambda: changed(24, "<I", 60000, data=changed(40, "<Q", 128 + 64 * 60000)), "dictionary offset",
            "a header for 60000 images"),
    "a stored dictionary over 4 MiB": (lambda: longer_dictionary(4 * MIB + 1 - STORED),
        "stored dictionary over 4 MiB", "has a dictionary of"),
    "a dictionary over 4 MiB": (lambda: changed(52, "<I", 4 * MIB + 1), "dictionary size",
        "has a dictionary of"),
    "a stored dictionary of nothing": (lambda: changed(52, "<I", 0), "dictionary size",
        "has a dictionary of"),
    "a dictionary that is not stored": (lambda: changed(52, "<I", 1, data=PLAIN), "dictionary size",
        "has a dictionary of"),
    "another data offset": (lambda: changed(56, "<Q", 128 + 3 * 64 + STORED + 1), "data offset",
        "has offsets that format 1 does not allow"),
    "a dictionary that is longer than the file": (
        lambda: changed(48, "<IIQ", MIB, 700, 128 + 3 * 64 + MIB), "data offset",
            "does not lie where format 1 puts it"),
    "a digest of no dictionary": (lambda: changed(64, "<B", 1, data=PLAIN),
        "digest of a dictionary that is not there", "names a digest"),
    "the last byte of that digest": (lambda: changed(95, "<B", 1, data=PLAIN),
        "digest of a dictionary that is not there", "names a digest"),
    "another index": (lambda: changed(128 + 40, "<I", 1), "SHA-256 of the index differs",
        "has an index that does not match its SHA-256"),
    "another dictionary": (lambda: changed(64, "<B", RIGHT[64] ^ 1), "SHA-256 of the dictionary differs",
        "the dictionary does not match"),
    "images out of order": (swapped, "index is not sorted or not unique", "is out of order"),
    "an image twice": (lambda: entry(1, 0, "<32s", RIGHT[128:160]), "index is not sorted or not unique",
        "is out of order"),
    "an empty frame": (lambda: entry(0, 40, "<I", 0), "frame size out of bounds", "has sizes 0 and"),
    "a frame over 64 MiB": (lambda: entry(0, 40, "<I", 64 * MIB + 1), "frame size out of bounds",
        "1 to 67108864 are allowed"),
    "an empty image": (lambda: entry(0, 44, "<I", 0), "image size out of bounds", "and 0, 1 to"),
    "an image over 64 MiB": (lambda: entry(0, 44, "<I", 64 * MIB + 1), "image size out of bounds",
        "1 to 67108864 are allowed"),
    "reserved bytes of an entry": (lambda: entry(1, 48, "<B", 1), "reserved field is not zero",
        "has reserved bytes"),
    "the last reserved byte of an entry": (lambda: entry(2, 63, "<B", 1), "reserved field is not zero",
        "has reserved bytes"),
    "a frame elsewhere": (lambda: entry(1, 32, "<Q", frame(1)[0] + 1), "frame is not where it belongs",
        "does not lie where format 1 puts it"),
    "frames in another order": (exchanged_frames, "frame is not where it belongs",
        "does not lie where format 1 puts it"),
    "a frame beyond the file": (lambda: entry(2, 40, "<I", frame(2)[1] + 1), "frame is not where it belongs",
        "does not lie where format 1 puts it"),
    "a gap before the end": (lambda: entry(2, 40, "<I", frame(2)[1] - 1), "bytes after the last frame",
        "1 bytes after the last frame"),
    "another image": (lambda: entry(2, 0, "<32s", b"\xff" * 32), "SHA-256 of the image differs",
        "does not match its SHA-256"),
}  # fmt: skip


@pytest.mark.parametrize("why", RULES)
def test_each_rule_refuses_its_container(readers: Readers, why: str) -> None:
    make, reason, ours = RULES[why]
    data = make()
    assert readers("container", data).split(" ", 2)[2].startswith(reason)
    assert ours in python_reads("container", data)


def one(image: bytes, frame: bytes, size: int | None = None) -> bytes:
    """A container of one image whose frame is any bytes."""
    row = hashlib.sha256(image).digest() + struct.pack(
        "<QII16x", 192, len(frame), len(image) if size is None else size
    )
    head = b"AOTFIMG\n" + struct.pack("<IIQIIQQIIQ", 1, 128, 192 + len(frame), 1, 0, 128, 192, 0, 0, 192)
    return head + bytes(32) + hashlib.sha256(row).digest() + row + frame


def packed(image: bytes, **settings: Any) -> bytes:
    """A frame as the format has it, but for these settings."""
    chosen = {"write_content_size": True, "write_checksum": False, "write_dict_id": False, **settings}
    level = chosen.pop("level", 3)
    parameters = zstandard.ZstdCompressionParameters.from_level(level, **chosen)
    return zstandard.ZstdCompressor(compression_params=parameters).compress(image)


IMAGE = b"\x7fELF" + DICE.randbytes(50) * 20
LARGE = DICE.randbytes(1024) * (9 * 1024)
"""More than a window of 8 MiB."""
SKIPPABLE = struct.pack("<II", 0x184D2A50, len(IMAGE)) + IMAGE
FRAMES: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "bytes of no frame": (lambda: one(IMAGE, b"no frame at all, but some bytes"), "not a zstd frame",
        "is not a zstd frame"),
    "a skippable frame": (lambda: one(IMAGE, SKIPPABLE), "not a zstd data frame", "is not a zstd frame"),
    "a frame of another size": (lambda: one(IMAGE, packed(IMAGE + b"x")),
        "frame's content size differs from the index", "that the index states"),
    "a frame without its size": (
        lambda: one(IMAGE, packed(IMAGE, write_content_size=False)),
            "frame's content size differs from the index", "that the index states"),
    "a window over 8 MiB": (lambda: one(LARGE, packed(LARGE, window_log=24)), "frame's window is over 8 MiB",
        "that the index states"),
    "a checksum": (lambda: one(IMAGE, packed(IMAGE, write_checksum=True)),
        "frame has a checksum or dictionary ID", "that the index states"),
    "a dictionary ID": (lambda: one(IMAGE, with_id(packed(IMAGE))), "frame has a checksum or dictionary ID",
        "that the index states"),
    "two frames": (lambda: one(IMAGE, packed(IMAGE) * 2), "not exactly one zstd frame", "does not decode"),
    "half a frame": (lambda: one(IMAGE, packed(IMAGE)[:-9]), "not exactly one zstd frame", "does not decode"),
    "a damaged block": (lambda: one(IMAGE, damaged_block(packed(IMAGE))), "zstd data is damaged",
        "does not decode"),
    "another image": (lambda: one(IMAGE, packed(IMAGE[::-1])), "SHA-256 of the image differs",
        "does not match its SHA-256"),
}  # fmt: skip
"""What is in a frame's place, and the reasons of the C++ reader and of Python's."""


def with_id(frame: bytes) -> bytes:
    """The frame with a dictionary ID of one byte, which zstd's format puts behind the descriptor and the
    window."""
    descriptor = frame[4]
    at = 5 + (descriptor & 0x20 == 0)
    return frame[:4] + bytes([descriptor | 1]) + frame[5:at] + b"\x07" + frame[at:]


def damaged_block(frame: bytes) -> bytes:
    """The content of the first block is written over; its header and the frame's, 10 bytes together, are
    right."""
    return frame[:10] + b"\xff" * (len(frame) - 10)


@pytest.mark.parametrize("why", FRAMES)
def test_each_rule_refuses_its_frame(readers: Readers, why: str) -> None:
    make, reason, ours = FRAMES[why]
    data = make()
    assert readers("container", data).split(" ", 2)[2] == reason
    assert ours in python_reads("container", data)


LIMITS: dict[str, Callable[[], bytes]] = {
    "with a dictionary": lambda: RIGHT,
    "without one": lambda: PLAIN,
    "one image of one byte": lambda: container([b"x"], b""),
    "a window of 8 MiB": lambda: one(LARGE, packed(LARGE, window_log=23)),
    "a dictionary of 4 MiB": lambda: container([b"x" * 99], DICE.randbytes(1024) * 4096),
}


@pytest.mark.parametrize("what", LIMITS)
def test_right_containers_are_accepted(readers: Readers, what: str) -> None:
    data = LIMITS[what]()
    assert readers("container", data).startswith("accepted")
    assert python_reads("container", data) == ""
