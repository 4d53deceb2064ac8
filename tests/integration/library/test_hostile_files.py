"""Readers of pack files with hostile bytes: refused, or read as before; never a crash. Also the fuzzers'
corpus."""

from __future__ import annotations

import random
import struct
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.errors import PackError
from aotforge.pack.dispatch import decode_dispatch
from tests.support.attention import spy_pack
from tests.support.fake_hsaco import FakeKernel, fake_hsaco
from tests.support.readers import Readers, sanitized_readers
from tests.support.runtime import ROOT, Objects
from tests.support.small_pack import Choice, Kernel, SmallPack, files, seal

CORPUS = ROOT / "runtime" / "fuzz" / "corpus"


@pytest.fixture(scope="module")
def sanitized() -> Objects:
    return sanitized_readers()


@pytest.fixture
def readers(sanitized: Objects, tmp_path: Path) -> Iterator[Readers]:
    started = Readers(sanitized.program("readers"), tmp_path, sanitized=True)
    yield started
    started.close()


@pytest.fixture(scope="module")
def good() -> dict[str, bytes]:
    pack = spy_pack(options={"mask": (0,)})
    image = next(iter(pack.kernels[0].functionals.values()))[0].image
    return files(replace(pack, dictionary=image * 3))


def kind_of(name: str) -> str:
    return "dispatch" if name.endswith(".aotd") else "container"


def test_good_files_are_accepted(readers: Readers, good: dict[str, bytes]) -> None:
    assert good
    for name, data in good.items():
        assert readers(kind_of(name), data).startswith("accepted ")


@pytest.mark.parametrize("name", ["dispatch.aotd", "spy.attn_fwd.aoti"])
def test_every_truncation_is_refused(readers: Readers, good: dict[str, bytes], name: str) -> None:
    data = good[name]
    for size in [*range(0, min(len(data), 300)), *range(300, len(data), 37)]:
        assert readers(kind_of(name), data[:size]).startswith("refused "), size
    assert readers(kind_of(name), data + b"\0").startswith("refused ")


@pytest.mark.parametrize("name", ["dispatch.aotd", "spy.attn_fwd.aoti"])
def test_every_bit_counts(readers: Readers, good: dict[str, bytes], name: str) -> None:
    """Containers are also protected by their ID in the dispatch data, which this reader is not given: a flip
    that is accepted must give the same images."""
    data = good[name]
    same = readers(kind_of(name), data)
    chosen = random.Random(1).sample(range(len(data) * 8), 1500)
    for bit in [*range(0, 128 * 8, 5), *chosen]:
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        answer = readers(kind_of(name), bytes(flipped))
        assert answer.startswith("refused ") or answer == same, bit


@pytest.mark.parametrize("value", [0, 1, 127, 2**16, 2**31 - 1, 2**31, 2**32 - 1])
def test_container_header_fields_out_of_bounds(readers: Readers, good: dict[str, bytes], value: int) -> None:
    data = good["spy.attn_fwd.aoti"]
    for offset in (8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, *range(128 + 32, 128 + 64, 4)):
        changed = bytearray(data)
        changed[offset : offset + 4] = struct.pack("<I", value)
        # the index digest is put right, so that its entries are looked at
        import hashlib

        changed[96:128] = hashlib.sha256(bytes(changed[128 : 128 + 64])).digest()
        if bytes(changed) != data:
            assert readers("container", bytes(changed)).startswith("refused "), offset


def test_dispatch_bodies_with_right_digests(readers: Readers, good: dict[str, bytes]) -> None:
    """Mutations behind a right digest reach the parser itself."""
    body = good["dispatch.aotd"][64:]
    dice = random.Random(2)
    refused = 0
    for _ in range(3000):
        changed = bytearray(body)
        for _ in range(dice.choice((1, 1, 2, 5))):
            changed[dice.randrange(len(body))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        answer = readers("dispatch", seal(bytes(changed)))
        refused += answer.startswith("refused ")
    assert refused > 1000
    for size in range(0, len(body), 3):
        assert readers("dispatch", seal(body[:size])).startswith("refused ")


PREDICATES: dict[str, tuple[tuple[int, tuple[str, ...], int, int], bool]] = {
    "multiple of a pointer": ((0, ("p",), 16, 0), True),
    "multiple of a u64": ((0, ("u",), 2**63 - 1, 0), True),
    "product of four": ((0, ("n", "u", "n", "u"), 2**32 - 1, 0), True),
    "range of a product": ((1, ("n", "u"), -(2**63), 2**63 - 1), True),
    "empty range": ((1, ("n",), 9, 3), True),
    "range of a pointer": ((1, ("p",), 0, 1), False),
    "product with a pointer": ((0, ("n", "p"), 16, 0), False),
    "multiple of a float": ((0, ("x",), 16, 0), False),
    "range of a product with a float": ((1, ("n", "x"), 0, 1), False),
    "no value": ((0, (), 16, 0), False),
    "product of five": ((1, ("n",) * 5, 0, 1), False),
    "divisor 0": ((0, ("n",), 0, 0), False),
    "negative divisor": ((0, ("n",), -16, 0), False),
    "multiple with a second bound": ((0, ("n",), 16, 1), False),
    "product's divisor of 33 bits": ((0, ("n", "n"), 2**32, 0), False),
    "unknown kind": ((2, ("n",), 1, 1), False),
}
"""Kind, values, low, high, and whether readers take it."""


@pytest.mark.parametrize("why", PREDICATES)
def test_both_readers_take_the_same_predicates(readers: Readers, why: str) -> None:
    predicate, accepted = PREDICATES[why]
    image = fake_hsaco("gfx908", [FakeKernel(symbol="k", types=["i64"])])
    choice = Choice(image=image, symbol="k", predicates=[predicate])
    kernel = Kernel(
        name="t.k", operator="op", parameters=[("i64", "n")], functionals={("gfx908", ()): [choice]}
    )
    values = [("p", "ptr"), ("n", "i64"), ("u", "u64"), ("x", "f32")]
    data = files(SmallPack(archs=["gfx908"], operators={"op": values}, kernels=[kernel]))["dispatch.aotd"]
    assert readers("dispatch", data).startswith("accepted " if accepted else "refused ")
    with nullcontext() if accepted else pytest.raises(PackError):
        decode_dispatch(data, file=why)


def test_enormous_counts_do_not_allocate(readers: Readers) -> None:
    for body in (struct.pack("<H", 65535), struct.pack("<H", 1) + b"\x06gfx908" + struct.pack("<H", 1024)):
        assert readers("dispatch", seal(body)).startswith("refused ")


@pytest.mark.parametrize("target", ["dispatch", "container", "attention"])
def test_fuzz_corpus(sanitized: Objects, target: str) -> None:
    inputs = sorted((CORPUS / target).iterdir())
    assert inputs
    ran = subprocess.run(
        [sanitized.folder / "fuzz" / f"replay_fuzz_{target}", *inputs],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, f"{len(inputs)} inputs\n"), ran.stderr


def test_portable_digest_agrees(readers: Readers, good: dict[str, bytes]) -> None:
    """The portable SHA-256 and the one with CPU instructions read the same files."""
    name = "spy.attn_fwd.aoti"
    fast = readers("container", good[name])
    assert readers("portable", good[name]) == fast
