"""Archives from hostile sources: everything but plain files, folders and links below one top folder is refused."""

from __future__ import annotations

import contextlib
import gzip
import io
import tarfile
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotforge.deliver.install.install_release import unpack
from aotforge.errors import TrustError
from aotforge.formats.archive import Link, Member, sha256_file, write_tar_gz
from aotforge.formats.folder_sink import FolderSink
from aotforge.formats.untrusted_tar import (
    LIMITS,
    OWN_LIMITS,
    ArchiveFacts,
    NoSink,
    TarFacts,
    UnsafeArchiveError,
    read_archive,
)
from aotforge.publish.index import IndexedFile

Entry = tuple[str, bytes | None, dict[str, object]]
"""Name, content of a regular file, and fields of TarInfo."""


def tar(*entries: Entry, kind: int = tarfile.USTAR_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as file:
        for name, content, fields in entries:
            info = tarfile.TarInfo(name)
            info.size = len(content or b"")
            for field, value in fields.items():
                setattr(info, field, value)
            file.addfile(info, io.BytesIO(content or b""))
    return out.getvalue()


def pack(data: bytes) -> bytes:
    return gzip.compress(data, 6, mtime=0)


def read(data: bytes, *, piece: int = 1000, bounds: TarFacts | None = None) -> ArchiveFacts:
    chunks = (data[at : at + piece] for at in range(0, len(data), piece))
    return read_archive(chunks, NoSink()) if bounds is None else read_archive(chunks, NoSink(), bounds=bounds)


FILE: Entry = ("top/a", b"1", {})


def typed(kind: bytes, name: str = "top/x", **fields: object) -> Entry:
    return (name, None, {"type": kind, **fields})


HOSTILE: dict[str, tuple[tuple[Entry, ...], str]] = {
    "second top": ((FILE, ("other/b", b"2", {})), "'other' is outside the top folder 'top'"),
    "top file": ((("file", b"1", {}),), "is not in a top folder"),
    "absolute": ((("/etc/passwd", b"1", {}),), "absolute path"),
    "parent": ((FILE, ("top/../../b", b"1", {})), "is outside its folder"),
    "dot": ((("top/./b", b"1", {}),), "is not a plain path"),
    "empty part": ((("top//b", b"1", {}),), "is not a plain path"),
    "backslash": ((("top/..\\b", b"1", {}),), "is not a plain path"),
    "control character": ((("top/a\nb", b"1", {}),), "is not a plain path"),
    "absolute link": ((typed(tarfile.SYMTYPE, linkname="/etc/passwd"),), "target '/etc/passwd' of the link 'top/x' is an absolute path"),
    "climbing link": ((typed(tarfile.SYMTYPE, linkname="../../b"),), "target '../../b' of the link 'top/x' is outside its folder"),
    "climbing link within": ((typed(tarfile.SYMTYPE, "top/a/x", linkname="../b"),), "is outside its folder"),
    "link to itself": ((typed(tarfile.SYMTYPE, linkname="."),), "is not a plain path"),
    "empty link": ((typed(tarfile.SYMTYPE, linkname=""),), "is not a plain path"),
    "through a link": ((typed(tarfile.SYMTYPE, linkname="a"), ("top/x/y", b"1", {})), "is below an entry that is not a folder"),
    "through a file": ((FILE, ("top/a/y", b"1", {})), "is below an entry that is not a folder"),
    "hard link": ((FILE, typed(tarfile.LNKTYPE, linkname="top/a")), "is a hard link"),
    "device": ((typed(tarfile.CHRTYPE),), "is a character device"),
    "block device": ((typed(tarfile.BLKTYPE),), "is a block device"),
    "pipe": ((typed(tarfile.FIFOTYPE),), "is a named pipe"),
    "unknown": ((typed(b"Z"),), "is an entry of type b'Z'"),
    "twice": ((FILE, FILE), "occurs twice"),
    "link over file": ((FILE, typed(tarfile.SYMTYPE, "top/a", linkname="b")), "occurs twice"),
    "file over folder": ((("top/a/b", b"1", {}), FILE), "occurs twice"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_entries(name: str) -> None:
    entries, message = HOSTILE[name]
    with pytest.raises(UnsafeArchiveError, match=message):
        read(pack(tar(*entries)))


def test_extended_headers() -> None:
    long: Entry = ("top/" + "n" * 200, b"1", {})
    with pytest.raises(UnsafeArchiveError, match="a GNU long name"):
        read(pack(tar(long, kind=tarfile.GNU_FORMAT)))
    with pytest.raises(UnsafeArchiveError, match="an extended header"):
        read(pack(tar(long, kind=tarfile.PAX_FORMAT)))


def intact() -> bytes:
    return tar(("top", None, {"type": tarfile.DIRTYPE}), ("top/a", b"1" * 3000, {}), ("top/b", b"2", {}))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: b"", "gzip file is truncated"),
        (lambda: b"no gzip", "not a complete gzip"),
        (lambda: zlib.compress(intact()), "not a complete gzip"),
        (lambda: pack(b""), "the tar is truncated"),
        (lambda: pack(b"\0" * 1024), "no entries"),
        (lambda: pack(intact())[:-1], "gzip file is truncated"),
        (lambda: pack(intact())[:-9], "gzip file is truncated"),
        (lambda: pack(intact()[:2000]), "the tar is truncated"),
        (lambda: pack(intact()) + b"\0", "data after the end of the archive"),
        (lambda: pack(intact()) + pack(b"x"), "data after the end of the archive"),
        (lambda: pack(intact() + b"x"), "data after the end of the tar"),
        (lambda: pack(intact() + intact()), "data after the end of the tar"),
        (lambda: pack(intact()[:600] + b"x" + intact()[601:]), "damaged"),
        (lambda: pack(intact().replace(b"2" + b"\0" * 511, b"2" + b"\0" * 510 + b"x")), "padding"),
        (lambda: pack(intact())[:-8] + b"\0" * 8, "not a complete gzip"),
    ],
)
def test_damaged(make: Callable[[], bytes], message: str) -> None:
    with pytest.raises(UnsafeArchiveError, match=message):
        read(make())


def test_bombs() -> None:
    """Neither many bytes nor many entries beyond what the index lists; and never much of them in memory."""
    bomb = pack(tar(("top/a", b"\0" * (64 << 20), {})))
    assert len(bomb) < 100_000
    with pytest.raises(UnsafeArchiveError, match="unpacks to more than the expected 100000 bytes"):
        read(bomb, bounds=TarFacts(sha256="", size=100_000, members=10))
    many = pack(tar(*((f"top/{n}", b"", {}) for n in range(50))))
    with pytest.raises(UnsafeArchiveError, match="more than the expected 49 entries"):
        read(many, bounds=TarFacts(sha256="", size=1 << 20, members=49))
    assert read(many).tar.members == 50


def test_bounds_of_what_no_index_describes() -> None:
    assert (LIMITS.size, LIMITS.members) == (2_147_483_648, 50_000)
    assert (OWN_LIMITS.size, OWN_LIMITS.members) == (68_719_476_736, 1_000_000)


def test_folders_that_names_imply_count(tmp_path: Path) -> None:
    """A name of 255 bytes has 120 of its own: half a megabyte took gigabytes of memory and of disk."""
    deep = pack(tar(*((f"top/{n:03}/" + "/".join("a" * 100), b"", {}) for n in range(100))))
    assert read(deep).tar.members == 100 * 101
    with pytest.raises(UnsafeArchiveError, match="more than the expected 1000 entries and folders"):
        read_archive(
            [deep], FolderSink(root=tmp_path), bounds=TarFacts(sha256="", size=1 << 20, members=1000)
        )
    assert len(list(tmp_path.rglob("*"))) <= 1000
    tracemalloc.start()
    read(deep)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6_000_000  # 10,100 paths of at most 200 characters


def test_the_members_of_ours_are_their_entries(tmp_path: Path) -> None:
    """A signed index has that number; our writer makes an entry for each folder."""
    write_tar_gz(
        tmp_path / "a.tar.gz", {"top/a/b/c": Member(content=b"1"), "top/d": Member(content=b"2")}, epoch=0
    )
    with tarfile.open(tmp_path / "a.tar.gz") as made:
        assert read((tmp_path / "a.tar.gz").read_bytes()).tar.members == len(made.getnames()) == 5


NAMES = st.text(st.characters(categories=["L", "N"], max_codepoint=0x24F), min_size=1, max_size=20)
TREES = st.dictionaries(
    NAMES,
    st.one_of(st.binary(max_size=3000).map(lambda b: Member(content=b)), st.just(Link(target="somewhere"))),
    min_size=1,
    max_size=8,
)


@settings(max_examples=25)
@given(tree=TREES, piece=st.integers(1, 3000))
def test_ours_pass_however_they_arrive(
    tree: dict[str, Member | Link], piece: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What the release package writes is read back intact, and unpacks to the same, in pieces of any size."""
    folder = tmp_path_factory.mktemp("archive")
    members = {f"top/f{n}/{name}": member for n, (name, member) in enumerate(tree.items())}
    digests = write_tar_gz(folder / "x.tar.gz", members, epoch=0)
    data = (folder / "x.tar.gz").read_bytes()
    facts = read(data, piece=piece)
    assert (facts.sha256, facts.size, facts.tar.sha256) == (digests.file, digests.size, digests.tar)
    sink = FolderSink(root=folder / "out")
    sink.root.mkdir()
    file = IndexedFile(name="x.tar.gz", size=facts.size, sha256=facts.sha256, tar=facts.tar)
    unpack(file, "x", [data], sink)
    for name, member in members.items():
        path = sink.root / name.removeprefix("top/")
        if isinstance(member, Link):
            assert str(path.readlink()) == "somewhere"
        else:
            assert path.read_bytes() == member.content and sink.made[
                name.removeprefix("top/")
            ] == sha256_file(path)


@settings(max_examples=60)
@given(data=st.data())
def test_noise_never_does_anything_else_than_being_refused(data: st.DataObject) -> None:
    base = bytearray(intact())
    for _ in range(data.draw(st.integers(1, 4))):
        base[data.draw(st.integers(0, len(base) - 1))] = data.draw(st.integers(0, 255))

    class Watch(NoSink):
        def file(self, path: PurePosixPath, *, executable: bool, pieces: Iterator[bytes]) -> None:
            assert not path.is_absolute() and ".." not in path.parts and path.parts
            super().file(path, executable=executable, pieces=pieces)

    with contextlib.suppress(UnsafeArchiveError):
        read_archive([pack(bytes(base))], Watch())


@pytest.mark.parametrize(
    ("kind", "size"),
    [(tarfile.REGTYPE, -1), (tarfile.REGTYPE, -512), (tarfile.SYMTYPE, 1), (tarfile.DIRTYPE, 512)],
)
def test_sizes_that_no_entry_has(kind: bytes, size: int) -> None:
    """A negative size would lead back to what was read; other kinds than files have no content."""
    info = tarfile.TarInfo("top/x")
    info.type, info.size, info.linkname = kind, size, "a" if kind == tarfile.SYMTYPE else ""
    header = info.tobuf(tarfile.GNU_FORMAT)
    rest = tar(("top/y", b"1", {}))
    with pytest.raises(UnsafeArchiveError, match=f"has an invalid size of {size} bytes"):
        read_archive([pack(tar(FILE)[:1024] + header + rest)], NoSink())


def test_an_empty_folder_is_made(tmp_path: Path) -> None:
    data = pack(tar(("top", None, {"type": tarfile.DIRTYPE}), ("top/a/b", None, {"type": tarfile.DIRTYPE})))
    read_archive([data], FolderSink(root=tmp_path))
    assert (tmp_path / "a/b").is_dir()


def test_two_archives_into_one_folder(tmp_path: Path) -> None:
    """They may share a file of the same bytes; nothing else, and no way through a link of the other."""

    def put(sink: FolderSink, *entries: Entry) -> None:
        data = pack(tar(*entries))
        facts = read(data)
        unpack(
            IndexedFile(name="x.tar.gz", size=facts.size, sha256=facts.sha256, tar=facts.tar),
            "x.tar.gz",
            [data],
            sink,
        )

    sink = FolderSink(root=tmp_path)
    put(
        sink,
        ("top/lib/a", b"1", {"mode": 0o755}),
        ("top/l", None, {"type": tarfile.SYMTYPE, "linkname": "lib"}),
    )
    put(sink, ("top/lib/a", b"1", {}), ("top/lib/b", b"2", {}))
    assert (tmp_path / "lib/a").stat().st_mode & 0o777 == 0o755
    hostile: tuple[Entry, ...] = (
        ("top/lib/a", b"2", {}),
        ("top/lib", b"2", {}),
        ("top/l", b"2", {}),
        ("top/l/x", b"2", {}),
        ("top/lib/a/x", b"2", {}),
    )
    for entry in hostile:
        with pytest.raises(TrustError, match=r"x\.tar\.gz is refused: .* in another archive"):
            put(sink, entry)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "l", "lib"]
