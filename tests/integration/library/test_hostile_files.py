"""Readers of pack files with hostile bytes: refused, or read as before; never a crash. Also the fuzzers'
corpus."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.attention import spy_pack
from tests.support.readers import Readers, sanitized_readers
from tests.support.runtime import ROOT, Objects
from tests.support.small_pack import files, seal

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
