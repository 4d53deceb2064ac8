"""Bounds of what is made of a release of others."""

from __future__ import annotations

import errno
import os
import resource
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aotforge.conformance.check_release import check_release
from aotforge.errors import ReleaseError
from aotforge.formats import memory_sink
from aotforge.formats.memory_sink import MemorySink, ReleaseBounds, archive_bounds, limited_memory
from aotforge.formats.untrusted_tar import UnsafeArchiveError, file_chunks, read_archive
from aotforge.pipeline.verify_release import verify_release
from tests.support.hostile import member, tar_bytes, zipped
from tests.support.runtime import ROOT


def test_numbers() -> None:
    """docs/threat-model.md promises them."""
    assert (memory_sink._MOST, memory_sink._FREE, memory_sink._RATIO) == (2 << 30, 16 << 20, 40)
    assert (memory_sink._MEMBERS, memory_sink._FREE_MEMORY, memory_sink._MEMORY_RATIO) == (
        50_000,
        1 << 30,
        64,
    )


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes that a block may use in these tests. They take three times that: the heap of this process may have less than 32 MiB free."""
    monkeypatch.setattr(memory_sink, "_FREE_MEMORY", 64 << 20)
    return 64 << 20


def test_memory_is_in_proportion_to_the_folder(tmp_path: Path, small: int) -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with limited_memory(tmp_path):
        assert len(bytearray(small // 2)) == small // 2
    with pytest.raises(ReleaseError, match="takes more than 64 MiB of memory"), limited_memory(tmp_path):
        bytearray(small * 3)
    (tmp_path / "file").write_bytes(b"x" * (1 << 20))
    for number in range(8):
        (tmp_path / f"{number}").hardlink_to(tmp_path / "file")
        with (tmp_path / f"hole-{number}").open("wb") as file:
            file.truncate(1 << 20)
    with pytest.raises(ReleaseError, match="takes more than 128 MiB of memory"), limited_memory(tmp_path):
        bytearray(small * 4)
    with pytest.raises(ReleaseError, match="more than 128 MiB"), limited_memory(tmp_path / "file"):
        bytearray(small * 4)
    (tmp_path / "more").write_bytes(b"x" * (3 << 20))
    with limited_memory(tmp_path):
        assert len(bytearray(small * 3)) == small * 3
    with limited_memory(tmp_path / "file", tmp_path / "more"):
        assert len(bytearray(small * 3)) == small * 3
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_other_errors_and_a_lower_limit_stay(tmp_path: Path, small: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(ZeroDivisionError), limited_memory(tmp_path):
        raise ZeroDivisionError
    low = memory_sink._used_memory() + small // 4
    resource.setrlimit(resource.RLIMIT_DATA, (low, hard))
    try:
        with pytest.raises(ReleaseError, match="of memory"), limited_memory(tmp_path):
            bytearray(small * 3)
        assert resource.getrlimit(resource.RLIMIT_DATA) == (low, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def test_a_folder_that_is_no_release_has_the_limit_too(tmp_path: Path, small: int) -> None:
    """Its reader reports what is wrong; a link to a file without end is not followed for the limit."""
    (tmp_path / "link").symlink_to("/dev/zero")
    with pytest.raises(ReleaseError, match="takes more than 64 MiB of memory"), limited_memory(tmp_path):
        bytearray(small * 3)


def implied(names: int) -> bytes:
    """An archive of one folder; its name implies others."""
    return zipped(tar_bytes((member("/".join("a" * names), kind=b"5"), b"")))


def read(path: Path, bounds: ReleaseBounds) -> None:
    most = bounds.archive(path)
    bounds.used(read_archive(file_chunks(path), MemorySink(), bounds=most, top=None))


def test_members_are_those_of_all_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """188 kB made 600,000 folders."""
    monkeypatch.setattr(memory_sink, "_MEMBERS", 60)
    path, large = tmp_path / "a.tar.gz", tmp_path / "b.tar.gz"
    path.write_bytes(implied(30))
    large.write_bytes(implied(61))
    bounds = ReleaseBounds()
    read(path, bounds)
    read(path, bounds)
    with pytest.raises(UnsafeArchiveError, match="more than the expected 0 entries and folders"):
        read(path, bounds)
    bounds = ReleaseBounds()
    with pytest.raises(UnsafeArchiveError, match="more than the expected 60 entries and folders"):
        read(large, bounds)
    with pytest.raises(UnsafeArchiveError, match="more than the expected 0 entries and folders"):
        read(path, bounds)


def test_bounds_of_a_sparse_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(implied(3))
    assert archive_bounds(path).size == (16 << 20) + 40 * path.stat().st_size
    size = path.stat().st_size
    data = -(-size // 4096) * 4096
    os.truncate(path, data + (1 << 20))
    assert archive_bounds(path).size == (16 << 20) + 40 * data
    os.truncate(path, 3 << 20)
    with pytest.raises(OSError, match="its file is sparse") as caught:
        archive_bounds(path)
    assert caught.value.errno == errno.EINVAL


def test_bytes_of_holes_give_no_further_ones(tmp_path: Path) -> None:
    """Each archive could take the bytes again that all have once, because the holes of its file counted."""
    tar = tar_bytes((member("a", 14 << 20), bytes(14 << 20)))
    stored, small = zlib.compressobj(0, wbits=-15), zlib.compressobj(9, wbits=-15)
    data = b"\x1f\x8b\x08" + bytes(7) + stored.compress(tar[: 1 << 20]) + stored.flush(zlib.Z_FULL_FLUSH)
    data += small.compress(tar[1 << 20 :]) + small.flush()
    data += struct.pack("<II", zlib.crc32(tar), len(tar))
    path = tmp_path / "a.tar.gz"
    with path.open("wb") as file:
        for start in range(0, len(data), 4096):
            file.seek(start)
            if any(piece := data[start : start + 4096]):
                file.write(piece)
    bounds = ReleaseBounds()
    read(path, bounds)
    with pytest.raises(UnsafeArchiveError, match="more than"):
        read(path, bounds)


Command = Callable[[Path, bool], object]
COMMANDS: dict[str, Command] = {
    "aotforge.pipeline.verify_release": lambda folder, own: verify_release(
        folder, kernels_root=folder, cache=folder, own=own
    ),
    "aotforge.conformance.check_release": lambda folder, own: check_release(
        folder, checkout=ROOT, cache=None, own=own
    ),
}


@pytest.mark.parametrize("module", COMMANDS)
@pytest.mark.parametrize("own", [False, True])
def test_commands_limit_their_memory(
    module: str, own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for this checkout's own releases, which can be larger than a limit that is meant for others."""
    limited: list[Path] = []

    @contextmanager
    def recorded(folder: Path) -> Iterator[None]:
        limited.append(folder)
        yield

    monkeypatch.setattr(f"{module}.limited_memory", recorded)
    with pytest.raises(ReleaseError):
        COMMANDS[module](tmp_path, own)
    assert limited == ([] if own else [tmp_path])
