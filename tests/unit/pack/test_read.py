"""The strict reader: whatever happens to a pack's bytes, it is refused with file and reason, or yields the
same images.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotforge.errors import PackError, UnknownNameError
from aotforge.pack.binary import Cursor, Kind, Source
from aotforge.pack.container import (
    _FREE,
    _RATIO,
    check_decoded_size,
    read_index,
)
from aotforge.pack.dispatch import HEADER_SIZE, decode_dispatch, encode_dispatch
from aotforge.pack.listing import cat_image, list_images
from aotforge.pack.model import ImagePack
from aotforge.pack.reader import open_files, open_pack, read_pack
from aotforge.pack.writer import write_pack
from tests.support import small_pack
from tests.unit.pack.samples import sample

PLAN, IMAGES = sample()
PACK = write_pack(PLAN, IMAGES, release="0.0-r1")
CONTAINER = "demo.first.aoti"
T = TypeVar("T")
EXPECTED = {bytes.fromhex(one.digest): one.binary for one in IMAGES}


def images_of(files: Mapping[str, bytes]) -> dict[bytes, bytes]:
    opened = open_files(ImagePack(name="amd-test", files=files))
    found: dict[bytes, bytes] = {}
    for container in opened.indexes:
        found |= opened.images(container)
    return found


def put(folder: Path, files: Mapping[str, bytes]) -> Path:
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def refused(files: Mapping[str, bytes], reason: str) -> None:
    with pytest.raises(PackError, match=reason):
        open_files(ImagePack(name="amd-test", files=files)).check_images()


def patched(file: str, offset: int, code: str, *values: object) -> dict[str, bytes]:
    data = bytearray(PACK.files[file])
    struct.pack_into(code, data, offset, *values)
    return {**PACK.files, file: bytes(data)}


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(PACK.files)), st.data())
def test_any_changed_byte_is_refused_or_leads_to_the_same_images(file: str, data: st.DataObject) -> None:
    content = bytearray(PACK.files[file])
    # headers are short beside frames: half of the draws go to the front
    last = len(content) - 1
    at = data.draw(st.integers(0, min(last, 300)) | st.integers(0, last))
    content[at] ^= data.draw(st.integers(1, 255))
    try:
        found = images_of({**PACK.files, file: bytes(content)})
    except PackError as error:
        assert file in error.what or "__signature__" in error.what
    else:
        assert found == EXPECTED


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(PACK.files)), st.data())
def test_any_truncation_or_addition_is_refused(file: str, data: st.DataObject) -> None:
    content = PACK.files[file]
    cut = data.draw(st.integers(0, len(content) - 1))
    refused({**PACK.files, file: content[:cut]}, file)
    refused({**PACK.files, file: content + data.draw(st.binary(min_size=1, max_size=70))}, file)


def lists_at() -> list[int]:
    """Offsets of the indices of predicate lists in the dispatch data: two bytes each."""
    found: list[int] = []

    class Watch(Cursor):
        def one_of(self, kind: Kind, what: str, entries: Sequence[T], value: T | None = None) -> T:
            if what == "a predicate list index":
                found.append(self._at)
            return super().one_of(kind, what, entries)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("aotforge.pack.dispatch.Cursor", Watch)
        decode_dispatch(PACK.files["dispatch.aotd"], file="d")
    return found


LISTS_AT = lists_at()
PLACES = st.integers(HEADER_SIZE, len(PACK.files["dispatch.aotd"]) - 1).filter(
    lambda at: not {at, at - 1} & set(LISTS_AT)
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(PLACES, st.integers(0, 255)), min_size=1, max_size=3))
def test_dispatch_data_with_a_valid_digest_is_read_back_or_refused(changes: list[tuple[int, int]]) -> None:
    """Mutations behind the checksum: what the reader accepts, the writer writes as the same bytes."""
    content = with_digest(changes)
    try:
        table = decode_dispatch(content, file="d")
    except PackError as error:
        assert error.what.startswith("d: ")
    else:
        assert encode_dispatch(table, file="d") == content


@pytest.mark.parametrize("at", LISTS_AT)
def test_the_numbers_of_predicate_lists_are_free(at: int) -> None:
    """The writer's are in the order of their first use; data with others are read, and written as the same
    table."""
    old = int.from_bytes(PACK.files["dispatch.aotd"][at : at + 2], "little")
    content = with_digest([(at, 1 - old)])
    table = decode_dispatch(content, file="d")
    assert table != decode_dispatch(PACK.files["dispatch.aotd"], file="d")
    assert decode_dispatch(encode_dispatch(table, file="d"), file="d") == table
    with pytest.raises(PackError, match="a predicate list index is 2, allowed are 0 to 1"):
        decode_dispatch(with_digest([(at, 2)]), file="d")


def with_digest(changes: Iterable[tuple[int, int]]) -> bytes:
    """The dispatch data with other bytes at these offsets, and the checksum of all."""
    content = bytearray(PACK.files["dispatch.aotd"])
    for at, value in changes:
        content[at] = value
    content[32:64] = hashlib.sha256(content[HEADER_SIZE:]).digest()
    return bytes(content)


def test_missing_and_unexpected_files_are_refused(tmp_path: Path) -> None:
    for file in PACK.files:
        refused({name: data for name, data in PACK.files.items() if name != file}, f"{file}: is missing")
    refused({**PACK.files, "stray.aoti": b"x"}, r"stray\.aoti: is not part of the pack")
    folder = put(tmp_path / "amd-test", PACK.files)
    (folder / "dispatch.aotd").unlink()
    with pytest.raises(PackError, match=r"dispatch\.aotd: is missing"):
        read_pack(folder)
    (folder / "dispatch.aotd").mkdir()
    with pytest.raises(PackError, match="Is a directory"):
        read_pack(folder)
    with pytest.raises(PackError, match="nowhere: No such file"):
        open_pack(tmp_path / "nowhere")


def test_pack_on_disk_is_the_pack_that_was_written(tmp_path: Path) -> None:
    read = read_pack(put(tmp_path / "amd-test", PACK.files))
    assert read == ImagePack(name="amd-test", files=dict(PACK.files))


def test_listing_shows_each_call_once(tmp_path: Path) -> None:
    rows = list_images(open_pack(put(tmp_path / "amd-test", PACK.files)))
    assert len(rows) == len(IMAGES)
    assert {row.digest for row in rows} == {one.digest for one in IMAGES}
    row = next(
        r
        for r in rows
        if r.kernel == "demo.second" and r.arch == "gfx908" and r.key == (("dtype", 3), ("mode", 0))
    )
    assert (row.tried, row.operator, row.step, row.symbol) == (0, "blend", 1, "second_kernel")
    assert row.size == len(EXPECTED[bytes.fromhex(row.digest)])
    assert 0 < row.stored < row.size


def test_cat_touches_no_other_image(tmp_path: Path) -> None:
    """Every frame but the wanted one is overwritten; the image still comes out, the others do not."""
    folder = put(tmp_path / "amd-test", PACK.files)
    opened = open_pack(folder)
    entries = opened.indexes[CONTAINER].images
    wanted, victim = entries[1], entries[2]
    data = bytearray(PACK.files[CONTAINER])
    for entry in entries:
        if entry != wanted:
            data[entry.offset : entry.offset + entry.stored] = bytes(entry.stored)
    (folder / CONTAINER).write_bytes(data)
    assert cat_image(open_pack(folder), wanted.digest.hex()[:12]) == EXPECTED[wanted.digest]
    assert cat_image(open_pack(folder), wanted.digest.hex().upper()) == EXPECTED[wanted.digest]
    with pytest.raises(PackError, match=victim.digest.hex()):
        cat_image(open_pack(folder), victim.digest.hex())
    with pytest.raises(PackError):
        read_pack(folder)


def test_cat_of_an_unknown_or_ambiguous_digest(tmp_path: Path) -> None:
    folder = put(tmp_path / "amd-test", PACK.files)
    for digest in ("", "zz", "0" * 64):
        with pytest.raises(UnknownNameError, match="has 0 images"):
            cat_image(open_pack(folder), digest)
    first = [digest.hex()[0] for digest in EXPECTED]
    ambiguous = next(c for c in first if first.count(c) > 1)
    with pytest.raises(UnknownNameError, match=r"has \d+ images whose"):
        cat_image(open_pack(folder), ambiguous)


def test_images_that_would_fill_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame of 60 bytes holds a mebibyte of zeros; a container may name 65,536 of 64 MiB."""
    monkeypatch.setattr("aotforge.pack.container._FREE", 0)
    open_files(PACK)
    choices = [small_pack.Choice(image=bytes([number]) + bytes(1 << 20), symbol="bomb") for number in (0, 1)]
    kernel = small_pack.Kernel(name="demo.bomb", operator="op", keys=("k",), functionals={
        ("gfx908", (number,)): [choice] for number, choice in enumerate(choices)
    })  # fmt: skip
    bomb = small_pack.SmallPack(archs=["gfx908"], operators={"op": [("k", "i32")]}, kernels=[kernel])
    source = Source("demo.bomb.aoti", small_pack.files(bomb)["demo.bomb.aoti"])
    with pytest.raises(PackError, match="has images of 2097154 bytes in files of"):
        check_decoded_size("pack", [(source, read_index(source))])
    monkeypatch.setattr("aotforge.pack.container._RATIO", 0)
    monkeypatch.setattr("aotforge.pack.container._FREE", 2_097_154)
    check_decoded_size("pack", [(source, read_index(source))])
    monkeypatch.setattr("aotforge.pack.container._FREE", 2_097_153)
    with pytest.raises(PackError, match="has images of 2097154 bytes in files of"):
        check_decoded_size("pack", [(source, read_index(source))])


def test_bounds_of_decoded_images() -> None:
    assert (_FREE, _RATIO) == (134_217_728, 100)
