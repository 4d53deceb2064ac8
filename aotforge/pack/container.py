"""A container (`<family>.<kernel>.aoti`) as bytes; layout and bounds in docs/image-pack-format.md."""

import hashlib
import struct
from collections.abc import Iterable

from aotforge.errors import PackError
from aotforge.pack.binary import Source, check_version, damaged
from aotforge.pack.frames import Decoder, choose_dictionary, encode_frames
from aotforge.pack.model import FORMAT, Compressor, ContainerIndex, ImageEntry

MAGIC = b"AOTFIMG\n"
HEADER_SIZE = 128
ENTRY_SIZE = 64
IMAGE_COUNT_LIMIT = 65_536
IMAGE_LIMIT = 64 * 1024 * 1024
DICTIONARY_LIMIT = 4 * 1024 * 1024
_FREE = 2 * IMAGE_LIMIT
_RATIO = 100
"""Real images shrink to a fifth or a twentieth; zstd could make 64 MiB of 2 kB."""

_HEADER = struct.Struct("<8sIIQIIQQIIQ32s32s")
_ENTRY = struct.Struct("<32sQII16s")


def encode_container(images: Iterable[bytes], compressor: Compressor, *, file: str) -> bytes:
    """The container of these images, in any order. Raises PackError when a bound is exceeded."""
    by_digest = {hashlib.sha256(image).digest(): image for image in images}
    digests = sorted(by_digest)
    if not 1 <= len(digests) <= IMAGE_COUNT_LIMIT:
        raise PackError(f"{file}: {len(digests)} images, the format holds 1 to {IMAGE_COUNT_LIMIT}")
    for digest, image in by_digest.items():
        if not 1 <= len(image) <= IMAGE_LIMIT:
            raise PackError(
                f"{file}: image {digest.hex()} has {len(image)} bytes, the format holds 1 to {IMAGE_LIMIT}"
            )
    ordered = [by_digest[digest] for digest in digests]
    dictionary = choose_dictionary(ordered, min(compressor.dictionary_bytes, DICTIONARY_LIMIT))
    stored = b"".join(encode_frames(b"", compressor, [dictionary])) if dictionary else b""
    frames = encode_frames(dictionary, compressor, ordered)
    dictionary_offset = HEADER_SIZE + ENTRY_SIZE * len(digests)
    data_offset = dictionary_offset + len(stored)
    entries = bytearray()
    at = data_offset
    for digest, image, frame in zip(digests, ordered, frames, strict=True):
        entries += _ENTRY.pack(digest, at, len(frame), len(image), bytes(16))
        at += len(frame)
    header = _HEADER.pack(
        MAGIC, FORMAT, HEADER_SIZE, at, len(digests), 0, HEADER_SIZE, dictionary_offset, len(stored),
        len(dictionary), data_offset, hashlib.sha256(dictionary).digest() if dictionary else bytes(32),
        hashlib.sha256(entries).digest(),
    )  # fmt: skip
    return b"".join((header, entries, stored, *frames))


def read_index(source: Source) -> ContainerIndex:
    """Header and index, every bound checked against the format and the file's size. Raises PackError."""
    file, size = source.name, len(source.data)
    if size < HEADER_SIZE:
        raise damaged(file, f"{size} bytes are fewer than a container's header")
    head = source.data[:HEADER_SIZE]
    (magic, version, header_size, file_size, count, reserved, index_offset, dictionary_offset, stored,
     decoded, data_offset, dictionary_digest, index_digest) = _HEADER.unpack(head)  # fmt: skip
    if magic != MAGIC:
        raise damaged(file, "does not start with a container's magic")
    check_version(file, version)
    end = HEADER_SIZE + ENTRY_SIZE * count
    dictionary_fits = max(stored, decoded) <= DICTIONARY_LIMIT and (stored == 0) == (decoded == 0)
    for holds, reason in (
        (file_size == size, f"has {size} bytes, its header states {file_size}"),
        (
            (header_size, reserved, index_offset) == (HEADER_SIZE, 0, HEADER_SIZE),
            "has a header that format 1 does not allow",
        ),
        (
            1 <= count <= IMAGE_COUNT_LIMIT and end <= size,
            f"has a header for {count} images, which its {size} bytes or the format do not hold",
        ),
        (dictionary_fits, f"has a dictionary of {stored} bytes for {decoded}, which format 1 does not allow"),
        ((dictionary_offset, data_offset) == (end, end + stored), "has offsets that format 1 does not allow"),
        (decoded or dictionary_digest == bytes(32), "names a digest for a dictionary that it does not have"),
    ):
        if not holds:
            raise damaged(file, reason)
    index = source.data[HEADER_SIZE:end]
    if hashlib.sha256(index).digest() != index_digest:
        raise damaged(file, "has an index that does not match its SHA-256")
    return ContainerIndex(
        identity=hashlib.sha256(head + index).digest(),
        images=_entries(index, data_offset, size, file),
        dictionary_offset=dictionary_offset,
        dictionary_stored=stored,
        dictionary_size=decoded,
        dictionary_digest=dictionary_digest,
    )


def check_decoded_size(where: str, files: Iterable[tuple[Source, ContainerIndex]]) -> None:
    """Raises PackError for a pack whose images would fill the memory, in proportion to its files."""
    stored = decoded = 0
    for source, index in files:
        stored += len(source.data)
        decoded += sum(image.size for image in index.images)
    if decoded > _FREE + _RATIO * stored:
        raise damaged(where, f"has images of {decoded} bytes in files of {stored}")


def read_dictionary(source: Source, index: ContainerIndex) -> bytes:
    """The decoded dictionary, verified; empty when the container has none. Raises PackError."""
    if not index.dictionary_size:
        return b""
    frame = source.data[index.dictionary_offset : index.dictionary_offset + index.dictionary_stored]
    dictionary = Decoder(b"", file=source.name).image(frame, index.dictionary_size, "the dictionary")
    if hashlib.sha256(dictionary).digest() != index.dictionary_digest:
        raise damaged(source.name, "the dictionary does not match its SHA-256")
    return dictionary


def read_images(
    source: Source, index: ContainerIndex, entries: Iterable[ImageEntry] | None = None
) -> dict[bytes, bytes]:
    """The images of `entries` (default: all) by digest, verified; others are not read. Raises PackError."""
    decoder, images = Decoder(read_dictionary(source, index), file=source.name), {}
    for entry in index.images if entries is None else entries:
        what = f"image {entry.digest.hex()}"
        frame = source.data[entry.offset : entry.offset + entry.stored]
        image = decoder.image(frame, entry.size, what)
        if hashlib.sha256(image).digest() != entry.digest:
            raise damaged(source.name, f"{what} does not match its SHA-256")
        images[entry.digest] = image
    return images


def _entries(index: bytes, data_offset: int, size: int, file: str) -> tuple[ImageEntry, ...]:
    entries = []
    at, previous = data_offset, b""
    for digest, offset, stored, decoded, reserved in _ENTRY.iter_unpack(index):
        what = f"the index entry of image {digest.hex()}"
        if digest <= previous:
            raise damaged(file, f"{what} is out of order")
        if reserved != bytes(16):
            raise damaged(file, f"{what} has reserved bytes that are not zero")
        if not (1 <= stored <= IMAGE_LIMIT and 1 <= decoded <= IMAGE_LIMIT):
            raise damaged(file, f"{what} has sizes {stored} and {decoded}, 1 to {IMAGE_LIMIT} are allowed")
        if offset != at or offset + stored > size:
            raise damaged(file, f"{what} has a frame at {offset} that does not lie where format 1 puts it")
        entries.append(ImageEntry(digest=digest, offset=offset, stored=stored, size=decoded))
        at, previous = at + stored, digest
    if at != size:
        raise damaged(file, f"{size - at} bytes after the last frame")
    return tuple(entries)
