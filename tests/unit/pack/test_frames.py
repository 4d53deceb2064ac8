"""Frames made by several threads are those that one would make."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from aotforge.pack.frames import Decoder, encode_frames, encoder
from aotforge.pack.model import Compressor

IMAGES = [
    random.Random(n % 7).randbytes(600) + random.Random(n).randbytes(40) + b"\0" * (n % 50)
    for n in range(331)
]
SETTINGS = Compressor(level=19, dictionary_bytes=4096)


@pytest.mark.parametrize("cpus", [1, 2, 3, 64])
@pytest.mark.parametrize("dictionary", [b"", b"".join(IMAGES[:4])])
def test_any_number_of_threads_gives_the_same_frames(
    cpus: int, dictionary: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = encoder(dictionary, SETTINGS, largest=max(map(len, IMAGES)))
    monkeypatch.setattr(os, "sched_getaffinity", {0: range(cpus)}.__getitem__)
    parts: list[list[bytes]] = []

    class Counting:
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            self._encoder = encoder(*arguments, **settings)
            self._part: list[bytes] = []
            parts.append(self._part)

        def compress(self, image: bytes) -> bytes:
            self._part.append(image)
            return self._encoder.compress(image)

    monkeypatch.setattr("aotforge.pack.frames.encoder", Counting)
    frames = encode_frames(dictionary, SETTINGS, IMAGES)
    # an encoder of its own for every thread, equal parts, at least 64 images each
    assert len(parts) == min(cpus, 5)
    assert max(map(len, parts)) == -(-len(IMAGES) // len(parts))
    assert frames == [one.compress(image) for image in IMAGES]
    decoder = Decoder(dictionary, file="f")
    assert [decoder.image(f, len(i), "an image") for f, i in zip(frames, IMAGES, strict=True)] == IMAGES
