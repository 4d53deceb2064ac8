"""Archives from other machines: only bounded files, folders and inward links reach a visitor."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aotforge.deliver.install.install_release import unpack
from aotforge.errors import TrustError
from aotforge.formats.archive import Link, Member, sha256_file, write_tar_gz
from aotforge.formats.tar_reader import (
    ArchiveFacts,
    Entry,
    FolderWriter,
    TarFacts,
    UnsafeArchiveError,
    read_archive,
)
from aotforge.formats.untrusted_file import parse_json
from aotforge.publish.index import IndexedFile
from tests.support.hostile import sparse_tar

Row = tuple[str, bytes | None, dict[str, object]]
"""Name, content of a regular file, and fields of TarInfo."""

BOUNDS = TarFacts(sha256="", size=1 << 20, members=100)


def tar(*rows: Row, kind: int = tarfile.USTAR_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as file:
        for name, content, fields in rows:
            info = tarfile.TarInfo(name)
            info.size = len(content or b"")
            for field, value in fields.items():
                setattr(info, field, value)
            file.addfile(info, io.BytesIO(content or b""))
    return out.getvalue()


def pack(data: bytes) -> bytes:
    return gzip.compress(data, 6, mtime=0)


def read(data: bytes, *, piece: int = 1000, bounds: TarFacts = BOUNDS) -> ArchiveFacts:
    chunks = (data[at : at + piece] for at in range(0, len(data), piece))
    return read_archive(chunks, top="top", bounds=bounds)


FILE: Row = ("top/a", b"1", {})


def typed(kind: bytes, name: str = "top/x", **fields: object) -> Row:
    return (name, None, {"type": kind, **fields})


HOSTILE: dict[str, tuple[tuple[Row, ...], str]] = {
    "second top": ((FILE, ("other/b", b"2", {})), "'other/b' is outside the top folder 'top'"),
    "top file": ((("top", b"1", {}),), "is outside the top folder"),
    "absolute": ((("/etc/passwd", b"1", {}),), "absolute path"),
    "parent": ((FILE, ("top/../../b", b"1", {})), "is outside its folder"),
    "dot": ((("top/./b", b"1", {}),), "is not a plain path"),
    "empty part": ((("top//b", b"1", {}),), "is not a plain path"),
    "backslash": ((("top/..\\b", b"1", {}),), "is not a plain path"),
    "control character": ((("top/a\nb", b"1", {}),), "is not a plain path"),
    "absolute link": (
        (typed(tarfile.SYMTYPE, linkname="/etc/passwd"),),
        "the link 'top/x' is an absolute path",
    ),
    "climbing link": (
        (typed(tarfile.SYMTYPE, linkname="../../b"),),
        "the link 'top/x' is outside its folder",
    ),
    "climbing link within": ((typed(tarfile.SYMTYPE, "top/a/x", linkname="../b"),), "is outside its folder"),
    "empty link": ((typed(tarfile.SYMTYPE, linkname=""),), "is not a plain path"),
    "hard link": ((FILE, typed(tarfile.LNKTYPE, linkname="top/a")), "is a hard link"),
    "device": ((typed(tarfile.CHRTYPE),), "is a special file"),
    "block device": ((typed(tarfile.BLKTYPE),), "is a special file"),
    "pipe": ((typed(tarfile.FIFOTYPE),), "is a special file"),
    "large": ((("top/x", b"1" * (2 << 20), {}),), "has more than the expected 1048576 bytes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_entries(name: str) -> None:
    rows, message = HOSTILE[name]
    with pytest.raises(UnsafeArchiveError, match=message):
        read(pack(tar(*rows, kind=tarfile.GNU_FORMAT)))


def test_sizes_that_are_not_the_contents() -> None:
    """A negative one would lead back to what was read; a sparse file's header claims gigabytes."""
    info = tarfile.TarInfo("top/x")
    info.size = -512
    with pytest.raises(UnsafeArchiveError, match=r"an invalid size of -512 bytes|invalid offset"):
        read(pack(info.tobuf(tarfile.GNU_FORMAT) + tar(FILE)))
    with pytest.raises(UnsafeArchiveError, match="is a sparse file"):
        read(pack(sparse_tar("top/x")))


@pytest.mark.parametrize(
    "rows",
    [
        (typed(tarfile.SYMTYPE, linkname="a"), ("top/x/y", b"1", {})),
        (FILE, ("top/a/y", b"1", {})),
        (FILE, ("top/a", b"2", {})),
        (FILE, typed(tarfile.SYMTYPE, "top/a", linkname="b")),
        (("top/a/b", b"1", {}), FILE),
    ],
    ids=["through a link", "through a file", "twice", "link over file", "file over folder"],
)
def test_entries_do_not_replace_each_other(rows: tuple[Row, ...], tmp_path: Path) -> None:
    with pytest.raises(UnsafeArchiveError, match=r"occurs twice|is not a folder"):
        read_archive([pack(tar(*rows))], FolderWriter(root=tmp_path), top="top")


def intact() -> bytes:
    return tar(("top", None, {"type": tarfile.DIRTYPE}), ("top/a", b"1" * 3000, {}), ("top/b", b"2", {}))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: b"", "truncated or damaged"),
        (lambda: b"no gzip", "truncated or damaged"),
        (lambda: zlib.compress(intact()), "truncated or damaged"),
        (lambda: pack(b""), "truncated or damaged"),
        (lambda: pack(b"\0" * 1024), "no entries"),
        (lambda: pack(intact())[:-1], "truncated or damaged"),
        (lambda: pack(intact())[:-9], "truncated or damaged"),
        (lambda: pack(intact()[:2000]), "truncated or damaged"),
        (lambda: pack(intact()[:5120]), "the tar is truncated"),
        (lambda: pack(intact()) + b"x", "truncated or damaged"),
        (lambda: pack(intact()) + pack(b"x"), "data after the end"),
        (lambda: pack(intact() + b"x"), "data after the end"),
        (lambda: pack(intact() + intact()), "data after the end"),
        (lambda: pack(intact()[:600] + b"x" + intact()[601:]), "a header is damaged"),
        (lambda: pack(intact())[:-8] + b"\0" * 8, "truncated or damaged"),
    ],
)
@pytest.mark.parametrize("piece", [7, 1 << 20])
def test_damaged(make: Callable[[], bytes], message: str, piece: int) -> None:
    with pytest.raises(UnsafeArchiveError, match=message):
        read(make(), piece=piece)


def test_bombs() -> None:
    """Neither more bytes nor more entries than the index lists."""
    bomb = pack(tar(*((f"top/{n}", b"\0" * 60_000, {}) for n in range(2))))
    assert len(bomb) < 1000
    with pytest.raises(UnsafeArchiveError, match="unpacks to more than the expected 100000 bytes"):
        read(bomb, bounds=TarFacts(sha256="", size=100_000, members=10))
    many = pack(tar(*((f"top/{n}", b"", {}) for n in range(50))))
    with pytest.raises(UnsafeArchiveError, match="more than the expected 49 entries"):
        read(many, bounds=TarFacts(sha256="", size=1 << 20, members=49))
    assert read(many).tar.members == 50


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
    tar = write_tar_gz(folder / "x.tar.gz", members, epoch=0)
    data = (folder / "x.tar.gz").read_bytes()
    facts = read(data, piece=piece)
    assert (facts.sha256, facts.size) == (hashlib.sha256(data).hexdigest(), len(data))
    assert facts.tar.sha256 == tar
    with tarfile.open(folder / "x.tar.gz") as made:  # a signed index has the number
        assert facts.tar.members == len(made.getnames())
    writer = FolderWriter(root=folder / "out")
    writer.root.mkdir()
    read_archive(folder / "x.tar.gz", writer, top="top")
    for name, member in members.items():
        below = name.removeprefix("top/")
        path = writer.root / below
        if isinstance(member, Link):
            assert str(path.readlink()) == "somewhere"
        else:
            assert path.read_bytes() == member.content and writer.made[below] == sha256_file(path)


def mutated(changes: list[tuple[int, int]], *, sealed: bool) -> bytes:
    """The seed with other bytes; `sealed`: with header checksums that fit, so that deeper checks are
    reached."""
    data = bytearray(intact())
    for place, value in changes:
        data[place] = value
    for start in (0, 512, 4096) if sealed else ():
        header = data[start : start + 512]
        header[148:156] = b" " * 8
        data[start + 148 : start + 156] = b"%06o\0 " % sum(header)
    return bytes(data)


EXAMPLES = [pytest.param(150, id="quick"), pytest.param(200_000, id="campaign", marks=pytest.mark.slow)]
EDITS = st.lists(st.tuples(st.integers(0, 5119), st.integers(0, 255)), min_size=1, max_size=12)


@pytest.mark.parametrize("examples", EXAMPLES)
def test_mutated_archives(examples: int) -> None:
    """A named error or plain entries, never another exception."""

    def visit(entry: Entry) -> None:
        assert not entry.path.is_absolute() and ".." not in entry.path.parts
        if entry.content:
            entry.content.read()

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(EDITS, st.booleans(), st.integers(0, 10240), st.binary(max_size=3))
    def check(changes: list[tuple[int, int]], sealed: bool, end: int, more: bytes) -> None:
        data = mutated(changes, sealed=sealed)
        for one in (data, data[:end], data + more):
            with contextlib.suppress(UnsafeArchiveError):
                assert read_archive([pack(one)], visit, bounds=BOUNDS).tar.size == len(one)
        packed = bytearray(pack(intact()))
        for place, value in changes:
            packed[place % len(packed)] = value
        with contextlib.suppress(UnsafeArchiveError):
            read_archive([bytes(packed)], visit, bounds=BOUNDS)

    check()


@pytest.mark.parametrize("examples", EXAMPLES)
def test_mutated_json(examples: int) -> None:
    @settings(max_examples=examples, deadline=None, database=None)
    @given(st.binary(max_size=40) | st.text('[]{}",:0e.-', max_size=40).map(str.encode), st.integers(1, 5000))
    def check(data: bytes, times: int) -> None:
        for text in (data, data * times):
            with contextlib.suppress(ValueError):
                parse_json(text)

    check()


def test_two_archives_into_one_folder(tmp_path: Path) -> None:
    """They may share a file of the same bytes; nothing else, and no way through a link of the other."""

    def put(writer: FolderWriter, *rows: Row) -> None:
        name = "x.tar.gz"
        data = pack(tar(*((f"aotriton/{path}", content, more) for path, content, more in rows)))
        facts = read_archive([data])
        (path := tmp_path.with_name(name)).write_bytes(data)
        unpack(IndexedFile(name=name, size=facts.size, sha256=facts.sha256, tar=facts.tar), path, writer)

    writer = FolderWriter(root=tmp_path)
    link: Row = ("l", None, {"type": tarfile.SYMTYPE, "linkname": "lib"})
    put(writer, ("lib/a", b"1", {"mode": 0o755}), link, ("empty", None, {"type": tarfile.DIRTYPE}))
    put(writer, ("lib/a", b"1", {}), ("lib/b", b"2", {}))
    assert (tmp_path / "lib/a").stat().st_mode & 0o777 == 0o755
    for name in ("lib/a", "lib", "l", "l/x", "lib/a/x"):
        with pytest.raises(TrustError, match=r"x\.tar\.gz is refused: .* (occurs twice|is not a folder)"):
            put(writer, (name, b"other", {}))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "empty", "l", "lib"]
