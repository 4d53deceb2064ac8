"""Dropout's numbers: published vectors of Philox-4x32-10 and SplitMix64, and what a mask depends on."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.flash.philox import keep_mask, philox, splitmix64, threshold
from kernels.flash.reference import Mask


def mask_of(*, seed: int = 3, offset: int = 4, p: float = 0.5) -> Mask:
    return keep_mask(seed=seed, offset=offset, dropout_p=p, planes=range(3), heads=2, rows=9, columns=21)


def words(key: int, *counter: int, rounds: int = 10) -> list[int]:
    c = [np.array([word], dtype=np.uint64) for word in counter]
    return [int(word[0]) for word in philox(key, (c[0], c[1], c[2], c[3]), rounds)]


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        # kat_vectors of Random123
        (0, (0, 0, 0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        (2**64 - 1, (2**32 - 1,) * 4, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (0x299F31D0A4093822, (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
         [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
        # as Triton's tl.randint4x draws them
        (42, (0, 0, 0, 0), [0x9CEAF053, 0x77F5493B, 0x12BF50AD, 0x5742B3D7]),
        (42, (1, 0, 0, 0), [0xFCDB2127, 0x53BA6CFD, 0x838F5A6E, 0x744E06FB]),
        (0x123456789ABCDEF0, (0, 1, 0, 0), [0xAB4806DF, 0x6E8135CE, 0xBBCA5391, 0xF37870F0]),
    ],
)  # fmt: skip
def test_words_are_those_of_the_published_vectors(
    key: int, counter: tuple[int, ...], expected: list[int]
) -> None:
    assert words(key, *counter) == expected


def test_seven_rounds_are_those_of_the_published_vectors() -> None:
    # kat_vectors of Random123
    assert words(0, 0, 0, 0, 0, rounds=7) == [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48]
    ones = 2**32 - 1
    assert words(2**64 - 1, ones, ones, ones, ones, rounds=7) == [
        0x5207DDC2,
        0x45165E59,
        0x4D8EE751,
        0x8C52F662,
    ]


def test_splitmix64_is_the_published_sequence() -> None:
    # of the state 1234567, whose increment is the golden ratio's
    states = [1234567 + i * 0x9E3779B97F4A7C15 for i in range(3)]
    assert [splitmix64(state & 2**64 - 1) for state in states] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@pytest.mark.parametrize(
    ("p", "expected"),
    [(0.1, 6553), (0.22, 14417), (0.5, 32767), (1e-12, 0), (1 / 65536, 0), (1 - 2**-20, 65534), (1.0, 65535)],
)
def test_threshold(p: float, expected: int) -> None:
    assert threshold(p) == expected


def test_a_mask_keeps_the_share_that_it_should_and_nothing_with_probability_one() -> None:
    for p in (0.1, 0.5, 0.9):
        kept = keep_mask(
            seed=3, offset=4, dropout_p=p, planes=range(2), heads=2, rows=128, columns=128
        ).mean()
        assert abs(kept - (1 - p)) < 0.01
    assert not mask_of(p=1.0).any()


def test_the_columns_of_a_draw_are_independent() -> None:
    kept = keep_mask(seed=3, offset=4, dropout_p=0.5, planes=range(2), heads=2, rows=256, columns=64)
    columns = kept.reshape(-1, 64).T * 2.0 - 1
    correlations = columns @ columns.T / columns.shape[1] - np.eye(64)
    assert abs(correlations).max() < 0.15


def test_a_mask_depends_on_coordinates_and_on_nothing_else() -> None:
    mask = mask_of()
    part = keep_mask(seed=3, offset=4, dropout_p=0.5, planes=range(2, 3), heads=2, rows=5, columns=13)
    assert np.array_equal(part, mask[2:, :, :5, :13])
    assert np.array_equal(mask_of(offset=4 + 2**64), mask)
    for other in (mask_of(seed=4), mask_of(seed=3 + 2**32), mask_of(offset=5), mask_of(offset=4 + 2**32)):
        assert 0.3 < (other == mask).mean() < 0.7
    for b in range(3):
        for h in range(2):
            assert sum(np.array_equal(mask[b, h], one) for plane in mask for one in plane) == 1
