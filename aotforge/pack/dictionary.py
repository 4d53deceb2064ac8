"""Choice of a container's dictionary: the parts of its images that help most to compress the others.

Maximum coverage, greedily: an image is a sequence of shingles (windows of 8 bytes at 4-byte steps, as AMD
instructions are 4 or 8 bytes), cut into chunks. Each step takes the chunk whose shingles, as far as no chosen
chunk has them, occur in most other images. A chosen chunk costs little: it is stored once, in the dictionary,
and its own image becomes a reference to it.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence

_WORD = 8
_STEP = 4
_CHUNK = 2048
# a shingle set of this size takes about a second and 200 MB; more images of one kernel add nothing new
_SAMPLE_BYTES = 8 * 1024 * 1024


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

    # gains only fall, so a gain that is still the greatest after looking again is the greatest of all
    heap = [(-gain(place), place) for place in chunks]
    heapq.heapify(heap)
    chosen = []
    while heap:
        _, place = heapq.heappop(heap)
        now = gain(place)
        if not now or len(chunks[place]) > limit:
            continue
        if heap and -now > heap[0][0]:
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
