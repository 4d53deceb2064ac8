"""Compression of a container: its dictionary, and zstd frames of one image each.

The dictionary holds the parts of images that help most to compress the others. Maximum coverage, greedily: an
image is a sequence of shingles (windows of 8 bytes at 4-byte steps, as instructions are 4 or 8 bytes), cut
into chunks. Each step takes the chunk whose shingles, as far as no chosen chunk has them, occur in most other
images. A chosen chunk costs little: it is stored once, in the dictionary, and its own image becomes a
reference to it.
"""

import heapq
import os
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import zstandard

from aotforge.pack.binary import damaged
from aotforge.pack.model import Compressor

WINDOW_LIMIT = 8 * 1024 * 1024
_IMAGES_PER_THREAD = 64
"""Fewer are done before another thread has indexed the dictionary."""
_WORD = 8
_STEP = 4
_CHUNK = 2048
# a shingle set of this size takes about a second and 200 MB; more images of one kernel add nothing new
_SAMPLE_BYTES = 8 * 1024 * 1024
_MAGIC = b"\x28\xb5\x2f\xfd"


def choose_dictionary(images: Sequence[bytes], limit: int) -> bytes:
    """Raw content dictionary of at most `limit` bytes; empty when no image would become smaller.

    A function of the sequence: ties go to the earlier chunk. Chunks keep their order, so that neighbours in
    an image stay neighbours.
    """
    sample = _sample(images)
    if len(sample) < 2:
        return b""
    users = Counter(shingle for image in sample for shingle in {*_shingles(image)})
    uncovered = {shingle: count - 1 for shingle, count in users.items() if count > 1}
    chunks = {
        (number, start): image[start : start + _CHUNK]
        for number, image in enumerate(sample)
        for start in range(0, len(image), _CHUNK)
    }

    def gain(place: tuple[int, int]) -> int:
        return sum(uncovered.get(shingle, 0) for shingle in {*_shingles(chunks[place])})

    # gains only fall, so a gain that is still the greatest after looking again is the greatest of all; with
    # its place, also in ties
    heap = [(-gain(place), place) for place in chunks]
    heapq.heapify(heap)
    chosen = []
    while heap:
        _, place = heapq.heappop(heap)
        now = gain(place)
        if not now or len(chunks[place]) > limit:
            continue
        if heap and (-now, place) > heap[0]:
            heapq.heappush(heap, (-now, place))
            continue
        chosen.append(place)
        limit -= len(chunks[place])
        for shingle in _shingles(chunks[place]):
            uncovered.pop(shingle, None)
    return b"".join(chunks[place] for place in sorted(chosen))


def _sample(images: Sequence[bytes]) -> Sequence[bytes]:
    """Evenly spaced images of about `_SAMPLE_BYTES`, all of them when they are fewer."""
    stride = -(-sum(map(len, images)) // _SAMPLE_BYTES)
    return images[:: max(1, stride)]


def _shingles(data: bytes) -> Iterator[int]:
    for start in range(0, _WORD, _STEP):
        words = array("Q")
        words.frombytes(data[start : start + (len(data) - start) // _WORD * _WORD])
        yield from words


def encoder(dictionary: bytes, compressor: Compressor, *, largest: int) -> zstandard.ZstdCompressor:
    """Makes frames with their content size, without checksum and dictionary ID; equal images, equal bytes.

    `largest` is the size of the largest image to come: zstd's parameters follow from it, so that the
    dictionary is indexed once and not for every image.
    """
    raw = _raw(dictionary)
    parameters = zstandard.ZstdCompressionParameters.from_level(
        compressor.level,
        source_size=largest,
        dict_size=len(dictionary),
        write_content_size=True,
        write_checksum=False,
        write_dict_id=False,
    )
    if raw is not None:
        raw.precompute_compress(compression_params=parameters)
    return zstandard.ZstdCompressor(dict_data=raw, compression_params=parameters)


def encode_frames(dictionary: bytes, compressor: Compressor, images: Sequence[bytes]) -> list[bytes]:
    """A frame for every image, in their order, compressed on all CPUs if there are many images.

    zstd runs outside Python's lock, each thread has an encoder of its own, and a frame depends on its image
    and the dictionary only.
    """
    largest = max(map(len, images))
    threads = max(1, min(len(os.sched_getaffinity(0)), len(images) // _IMAGES_PER_THREAD))

    def share(part: Sequence[bytes]) -> list[bytes]:
        return list(map(encoder(dictionary, compressor, largest=largest).compress, part))

    if threads == 1:
        return share(images)
    size = -(-len(images) // threads)
    with ThreadPoolExecutor(threads) as pool:
        parts = pool.map(share, [images[at : at + size] for at in range(0, len(images), size)])
        return [frame for part in parts for frame in part]


class Decoder:
    """Decodes frames of a file that is not trusted."""

    def __init__(self, dictionary: bytes, *, file: str) -> None:
        self._file = file
        self._zstd = zstandard.ZstdDecompressor(dict_data=_raw(dictionary), max_window_size=WINDOW_LIMIT)

    def image(self, frame: bytes, size: int, what: str) -> bytes:
        """The `size` bytes that the frame holds.

        Raises PackError unless it is exactly one frame of that content size (docs/image-pack-format.md).
        The caller has checked `size` against the format's bound.
        """
        if frame[:4] != _MAGIC:
            raise damaged(self._file, f"{what} is not a zstd frame")
        try:
            head = zstandard.get_frame_parameters(frame)
            strange = head.content_size != size or head.window_size > WINDOW_LIMIT
            if strange or head.dict_id or head.has_checksum:
                raise damaged(self._file, f"the frame of {what} has not the header that the index states")
            data = self._zstd.decompress(frame, max_output_size=size, allow_extra_data=False)
        except (zstandard.ZstdError, MemoryError) as error:
            raise damaged(self._file, f"{what} does not decode: {error}") from error
        if len(data) != size:
            raise damaged(self._file, f"{what} decodes to {len(data)} bytes instead of {size}")
        return data


def _raw(dictionary: bytes) -> zstandard.ZstdCompressionDict | None:
    if not dictionary:
        return None
    return zstandard.ZstdCompressionDict(dictionary, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
