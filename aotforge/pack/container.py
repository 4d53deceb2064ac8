"""A container (`<family>.<kernel>.aoti`) as bytes; layout and bounds in docs/image-pack-format.md."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable

from aotforge.errors import PackError
from aotforge.pack.binary import damaged
from aotforge.pack.byte_source import Source
from aotforge.pack.dictionary import choose_dictionary
from aotforge.pack.frames import Decoder, Encoder, encode_frames
from aotforge.pack.model import FORMAT, Compressor, ContainerIndex, ImageEntry

MAGIC = b"AOTFIMG\n"
HEADER_SIZE = 128
ENTRY_SIZE = 64
IMAGE_COUNT_LIMIT = 65_536
IMAGE_LIMIT = 64 * 1024 * 1024
DICTIONARY_LIMIT = 4 * 1024 * 1024

_HEADER = struct.Struct("<8sIIQIIQQIIQ32s32s")
_ENTRY = struct.Struct("<32sQII16s")


def encode_container(images: Iterable[bytes], compressor: Compressor, *, file: str) -> bytes:
    """The container of these images; their order and repetitions do not matter.

    Raises PackError when there is none, or a bound of the format is exceeded.
    """
    by_digest = {hashlib.sha256(image).digest(): image for image in images}
    digests = sorted(by_digest)
    if not 1 <= len(digests) <= IMAGE_COUNT_LIMIT:
        raise PackError(f"{file}: {len(digests)} images, the format holds 1 to {IMAGE_COUNT_LIMIT}")
    for digest in digests:
        if not 1 <= len(by_digest[digest]) <= IMAGE_LIMIT:
            raise PackError(
                f"{file}: image {digest.hex()} has {len(by_digest[digest])} bytes, 1 to {IMAGE_LIMIT} fit"
            )
    ordered = [by_digest[digest] for digest in digests]
    dictionary = choose_dictionary(ordered, min(compressor.dictionary_bytes, DICTIONARY_LIMIT))
    stored = Encoder(b"", compressor, largest=len(dictionary)).frame(dictionary) if dictionary else b""
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
    """Header and index, every bound checked against the format and the file's size; raises PackError."""
    file, size = source.name, source.size
    if size < HEADER_SIZE:
        raise damaged(file, f"{size} bytes are fewer than a container's header")
    head = source.read(0, HEADER_SIZE)
    (magic, version, header_size, file_size, count, reserved, index_offset, dictionary_offset, stored,
     decoded, data_offset, dictionary_digest, index_digest) = _HEADER.unpack(head)  # fmt: skip
    if magic != MAGIC:
        raise damaged(file, "does not start with a container's magic")
    if version != FORMAT:
        raise _other_version(file, version)
    if file_size != size:
        raise damaged(file, f"has {size} bytes, its header says {file_size}")
    if (header_size, reserved, index_offset) != (HEADER_SIZE, 0, HEADER_SIZE):
        raise damaged(file, "has a header that format 1 does not allow")
    if not 1 <= count <= IMAGE_COUNT_LIMIT or HEADER_SIZE + ENTRY_SIZE * count > size:
        raise damaged(
            file, f"says that it has {count} images, which its {size} bytes or the format do not hold"
        )
    if max(stored, decoded) > DICTIONARY_LIMIT or (stored == 0) != (decoded == 0):
        raise damaged(
            file, f"has a dictionary of {stored} bytes for {decoded}, which format 1 does not allow"
        )
    if dictionary_offset != HEADER_SIZE + ENTRY_SIZE * count or data_offset != dictionary_offset + stored:
        raise damaged(file, "has offsets that format 1 does not allow")
    if decoded == 0 and dictionary_digest != bytes(32):
        raise damaged(file, "names a digest for a dictionary that it does not have")
    index = source.read(HEADER_SIZE, ENTRY_SIZE * count)
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


def read_dictionary(source: Source, index: ContainerIndex) -> bytes:
    """The decoded dictionary, verified; empty when the container has none. Raises PackError."""
    if not index.dictionary_size:
        return b""
    frame = source.read(index.dictionary_offset, index.dictionary_stored)
    dictionary = Decoder(b"", file=source.name).image(frame, index.dictionary_size, "the dictionary")
    if hashlib.sha256(dictionary).digest() != index.dictionary_digest:
        raise damaged(source.name, "the dictionary does not match its SHA-256")
    return dictionary


def read_image(source: Source, entry: ImageEntry, dictionary: bytes) -> bytes:
    """One image, verified, without touching the others. Raises PackError."""
    return _image(source, entry, Decoder(dictionary, file=source.name))


def read_images(source: Source, index: ContainerIndex) -> dict[bytes, bytes]:
    """Every image by its digest, verified. Raises PackError."""
    decoder = Decoder(read_dictionary(source, index), file=source.name)
    return {entry.digest: _image(source, entry, decoder) for entry in index.images}


def _image(source: Source, entry: ImageEntry, decoder: Decoder) -> bytes:
    what = f"image {entry.digest.hex()}"
    image = decoder.image(source.read(entry.offset, entry.stored), entry.size, what)
    if hashlib.sha256(image).digest() != entry.digest:
        raise damaged(source.name, f"{what} does not match its SHA-256")
    return image


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


def _other_version(file: str, version: int) -> PackError:
    return PackError(
        f"{file}: image pack format {version}, this program reads format {FORMAT}",
        cause="the image pack was made by another release",
        hint="use image pack and library of one release, or of releases with the same format version",
    )
