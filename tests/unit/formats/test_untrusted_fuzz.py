"""Mutated archives, shards and JSON: a named error or a value, never another exception."""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aotforge.formats.memory_sink import MemorySink
from aotforge.formats.untrusted_file import parse_json
from aotforge.formats.untrusted_tar import NoSink, TarFacts, UnsafeArchiveError, read_archive, read_tar
from tests.support.hostile import member, tar_bytes, zipped

BOUNDS = TarFacts(sha256="", size=1 << 20, members=100)
SEED = tar_bytes(
    (member("top/a", 600), b"x" * 600),
    (member("top/d/", kind=tarfile.DIRTYPE), b""),
    (member("top/d/l", kind=tarfile.SYMTYPE, link="a"), b""),
)
EXAMPLES = [pytest.param(150, id="quick"), pytest.param(200_000, id="campaign", marks=pytest.mark.slow)]
edits = st.lists(st.tuples(st.integers(0, len(SEED) - 1), st.integers(0, 255)), min_size=1, max_size=12)


def mutated(changes: list[tuple[int, int]], *, sealed: bool) -> bytes:
    """The seed with other bytes; `sealed`: with header checksums that fit, so that deeper checks are reached."""
    data = bytearray(SEED)
    for place, value in changes:
        data[place] = value
    for start in (0, 1536, 2048) if sealed else ():
        header = data[start : start + 512]
        header[148:156] = b" " * 8
        data[start + 148 : start + 156] = b"%06o\0 " % sum(header)
    return bytes(data)


@pytest.mark.parametrize("examples", EXAMPLES)
def test_archives(examples: int) -> None:
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(edits, st.booleans(), st.integers(0, len(SEED)))
    def check(changes: list[tuple[int, int]], sealed: bool, end: int) -> None:
        data = mutated(changes, sealed=sealed)
        for tar in (data, data[:end]):
            sink = MemorySink()
            try:
                facts = read_tar([tar], sink, bounds=BOUNDS)
            except UnsafeArchiveError:
                pass
            else:
                assert facts.size == len(tar)
            assert sum(map(len, sink.files.values())) <= len(tar)

    check()


@pytest.mark.parametrize("examples", EXAMPLES)
def test_compressed_archives(examples: int) -> None:
    archive = zipped(SEED)

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(st.integers(0, len(archive) - 1), st.integers(0, 255)), min_size=1, max_size=6))
    def check(changes: list[tuple[int, int]]) -> None:
        data = bytearray(archive)
        for place, value in changes:
            data[place] = value
        try:
            read_archive([bytes(data)], NoSink(), bounds=BOUNDS)
        except UnsafeArchiveError:
            return
        assert zlib.decompress(bytes(data), 31) == SEED  # only gzip's own header differs

    check()


@pytest.mark.parametrize("examples", EXAMPLES)
def test_json(examples: int) -> None:
    @settings(max_examples=examples, deadline=None, database=None)
    @given(st.binary(max_size=40) | st.text('[]{}",:0e.-', max_size=40).map(str.encode), st.integers(1, 5000))
    def check(data: bytes, times: int) -> None:
        for text in (data, data * times):
            try:
                parse_json(text)
            except ValueError:
                continue

    check()


def chunks(data: bytes, size: int) -> Iterator[bytes]:
    return iter(partial(io.BytesIO(data).read, size), b"")


@pytest.mark.parametrize(
    ("tar", "message"),
    [
        (tar_bytes((member("top/l", 5, tarfile.SYMTYPE, "a"), b"12345")), "invalid size of 5 bytes"),
        (tar_bytes((member("top/d/", 5, tarfile.DIRTYPE), b"12345")), "invalid size of 5 bytes"),
        (tar_bytes((member("top/a", -1), b"")), "invalid size of -1 bytes"),
        (tar_bytes((member("top/a", 2 << 20), b"")), "has 2097152 bytes, more than the expected 1048576"),
        (
            tar_bytes((member("top/a", 1), b"x"), (member("top/a/", kind=tarfile.DIRTYPE), b"")),
            "occurs twice",
        ),
        (
            tar_bytes((member("top/a", 1), b"x"), (member("top/a/b", 1), b"x")),
            "is below an entry that is not a folder",
        ),
        (SEED + b"\0" * 5000 + b"x", "there is data after the end of the tar"),
    ],
)
@pytest.mark.parametrize("size", [7, 512, 1 << 20])
def test_each_condition_alone(tar: bytes, message: str, size: int) -> None:
    """With chunks of any size: what follows the end may arrive in a later one."""
    with pytest.raises(UnsafeArchiveError, match=message):
        read_tar(chunks(tar, size), NoSink(), bounds=BOUNDS)
    with pytest.raises(UnsafeArchiveError, match=message):
        read_archive(chunks(zipped(tar), size), NoSink(), bounds=BOUNDS)
