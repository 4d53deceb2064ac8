"""The choice of a container's dictionary: those images that tell the compressor most about the others.

Maximum coverage, greedily: an image is a set of shingles (windows of 16 bytes at 4-byte steps, as AMD instructions are
4 or 8 bytes), and each step takes the image whose shingles, as far as not yet covered, occur in most other images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

_SHINGLE = 16
_STEP = 4


def choose_dictionary(images: Sequence[bytes], limit: int) -> bytes:
    """Raw content dictionary of at most `limit` bytes, whole images of `images`; empty when it would help nobody.

    A function of the sequence: ties go to the earlier image. The best image comes last, where references to it are
    shortest.
    """
    if len(images) < 2:
        return b""
    shingles = [
        frozenset(image[i : i + _SHINGLE] for i in range(0, len(image) - _SHINGLE + 1, _STEP))
        for image in images
    ]
    users = Counter(shingle for of_image in shingles for shingle in of_image)
    uncovered = {shingle: count - 1 for shingle, count in users.items() if count > 1}
    left = limit
    chosen: list[int] = []
    while True:
        gains = [
            (sum(uncovered.get(shingle, 0) for shingle in shingles[i]), -i)
            for i in range(len(images))
            if i not in chosen and len(images[i]) <= left
        ]
        gain, negative = max(gains, default=(0, 0))
        if gain <= 0:
            break
        best = -negative
        chosen.append(best)
        left -= len(images[best])
        for shingle in shingles[best]:
            uncovered.pop(shingle, None)
    return b"".join(images[i] for i in reversed(chosen))
