"""The dictionary: within its limit, a function of the images, and of use."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotforge.pack import frames
from aotforge.pack.binary import Source
from aotforge.pack.container import encode_container, read_images, read_index
from aotforge.pack.frames import choose_dictionary
from aotforge.pack.model import Compressor

PARTS = st.lists(st.integers(0, 5), min_size=1, max_size=12)


def related(plan: list[list[int]]) -> list[bytes]:
    """Images made of shared parts of 600 bytes."""
    parts = [random.Random(i).randbytes(600) for i in range(6)]
    return [b"".join(parts[i] for i in image) for image in plan]


@settings(max_examples=80, deadline=None)
@given(st.lists(PARTS, max_size=8), st.integers(0, 20_000))
def test_limit_and_repeatability(plan: list[list[int]], limit: int) -> None:
    images = related(plan)
    chosen = choose_dictionary(images, limit)
    assert len(chosen) <= limit
    assert chosen == choose_dictionary(list(images), limit)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.binary(min_size=1, max_size=5000) | PARTS.map(lambda p: related([p])[0]), min_size=1, max_size=8
    )
)
def test_any_images_come_back(images: list[bytes]) -> None:
    source = Source("c", encode_container(images, Compressor(), file="c"))
    assert sorted(read_images(source, read_index(source)).values()) == sorted(set(images))


def test_nothing_in_common_means_no_dictionary() -> None:
    assert choose_dictionary([random.Random(i).randbytes(5000) for i in range(5)], 10**6) == b""
    assert choose_dictionary([b"alone" * 1000], 10**6) == b""
    assert choose_dictionary([], 10**6) == b""


def test_what_many_share_is_taken_before_what_two_share() -> None:
    many, few = random.Random(1).randbytes(2048), random.Random(2).randbytes(2048)
    images = [few + many, few + many, *(random.Random(i).randbytes(2048) + many for i in range(10, 16))]
    assert choose_dictionary(images, 2048) == many


def plain_choice(images: list[bytes], limit: int) -> bytes:
    """The same dictionary by the definition: every gain of every chunk is counted again before each step."""

    def windows(data: bytes) -> set[bytes]:
        return {data[at : at + 8] for at in range(0, len(data) - 7, 4)}

    chunks = {
        (n, at): image[at : at + 2048] for n, image in enumerate(images) for at in range(0, len(image), 2048)
    }
    users = Counter(window for image in images for window in windows(image))
    worth = {window: count - 1 for window, count in users.items()}
    chosen: list[tuple[int, int]] = []
    while True:
        gains = {
            place: sum(worth[w] for w in windows(chunk))
            for place, chunk in chunks.items()
            if len(chunk) <= limit
        }
        best = max(gains, key=lambda place: gains[place], default=None)
        if best is None or not gains[best]:
            return b"".join(images[n][at : at + 2048] for n, at in sorted(chosen))
        chosen.append(best)
        limit -= len(chunks[best])
        worth |= dict.fromkeys(windows(chunks.pop(best)), 0)


@pytest.mark.parametrize("limit", [0, 1000, 2048, 5000, 9000, 10**6])
@pytest.mark.parametrize("seed", range(3))
def test_the_choice_is_the_one_of_the_definition(seed: int, limit: int) -> None:
    """Parts of several sizes at places that differ, each in another number of images."""
    dice = random.Random(seed)
    parts = [dice.randbytes(4 * dice.randrange(20, 300)) for _ in range(7)]
    images = [
        dice.randbytes(4 * dice.randrange(100))
        + b"".join(part for i, part in enumerate(parts) if number > i)
        + b"xyz"
        for number in range(9)
    ]
    assert choose_dictionary(images, limit) == plain_choice(images, limit)


def test_large_containers_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at is bounded, and still shows what all images share."""
    images = [random.Random(0).randbytes(4096) + random.Random(i).randbytes(1000) for i in range(40)]
    monkeypatch.setattr(frames, "_SAMPLE_BYTES", 40_000)
    assert sum(map(len, frames._sample(images))) <= 40_000
    assert choose_dictionary(images, 4096) == images[0][:4096]


def test_the_sample_is_all_images_up_to_8_mib() -> None:
    images = [bytes(2**20)] * 8
    assert frames._sample(images) == images
    assert frames._sample([*images, b"x"]) == [images[0]] * 4 + [b"x"]
