"""Deterministic tarballs, read by tools that are not ours."""

from __future__ import annotations

import gzip
import hashlib
import io
import stat
import subprocess
import tarfile
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotforge.errors import ReleaseError
from aotforge.formats.archive import Link, Member, Members, unpack, write_tar_gz

PART = st.text("abcXYZ012._-", min_size=1, max_size=12).filter(lambda part: part not in (".", ".."))
MEMBER = st.builds(Member, content=st.binary(max_size=2000), executable=st.booleans())
TREES = st.dictionaries(
    st.tuples(PART, PART).map(lambda parts: "top/" + "/".join(parts)), MEMBER, min_size=1, max_size=6
)
TREE: Members = {
    "aotriton/lib/lib.so.1": Member(content=b"\x7fELF" + bytes(5000), executable=True),
    "aotriton/lib/lib.so": Link(target="lib.so.1"),
    "aotriton/include/a.h": Member(content=b"#pragma once\n"),
}


@settings(max_examples=60, deadline=None)
@given(TREES)
def test_members_come_back_and_order_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, tree: Members
) -> None:
    folder = tmp_path_factory.mktemp("tar")
    digest = write_tar_gz(folder / "a.tar.gz", tree, epoch=7)
    again = write_tar_gz(
        folder / "b.tar.gz", {name: tree[name] for name in sorted(tree, reverse=True)}, epoch=7
    )
    assert (folder / "a.tar.gz").read_bytes() == (folder / "b.tar.gz").read_bytes()
    assert digest == again
    with tarfile.open(folder / "a.tar.gz") as tar:
        infos = tar.getmembers()
        streams = {info.name: tar.extractfile(info) for info in infos if info.isreg()}
        read = {name: stream.read() for name, stream in streams.items() if stream}
    assert read == {name: member.content for name, member in tree.items() if isinstance(member, Member)}
    assert {(info.mtime, info.uid, info.gid, info.uname, info.gname) for info in infos} == {(7, 0, 0, "", "")}
    names = [info.name for info in infos]
    assert len(set(names)) == len(names)
    for info in infos:  # a folder comes before what it holds
        parent = info.name.rpartition("/")[0]
        assert not parent or names.index(parent) < names.index(info.name)


def test_gnu_tar_and_sha256sum_agree(tmp_path: Path) -> None:
    digest = write_tar_gz(tmp_path / "r.tar.gz", TREE, epoch=1_767_225_600)
    data = (tmp_path / "r.tar.gz").read_bytes()
    assert digest == hashlib.sha256(gzip.decompress(data)).hexdigest()
    command = ["tar", "--utc", "--full-time", "-tvzf", str(tmp_path / "r.tar.gz")]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [" ".join(line.split()) for line in listing.splitlines()] == [
        "drwxr-xr-x 0/0 0 2026-01-01 00:00:00 aotriton/",
        "drwxr-xr-x 0/0 0 2026-01-01 00:00:00 aotriton/include/",
        "-rw-r--r-- 0/0 13 2026-01-01 00:00:00 aotriton/include/a.h",
        "drwxr-xr-x 0/0 0 2026-01-01 00:00:00 aotriton/lib/",
        "lrwxrwxrwx 0/0 0 2026-01-01 00:00:00 aotriton/lib/lib.so -> lib.so.1",
        "-rwxr-xr-x 0/0 5004 2026-01-01 00:00:00 aotriton/lib/lib.so.1",
    ]
    assert subprocess.run(["gzip", "--test", tmp_path / "r.tar.gz"], check=False).returncode == 0


def test_name_that_no_tarball_can_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="cannot be a member"):
        write_tar_gz(tmp_path / "r.tar.gz", {"x" * 200: Member(content=b"")}, epoch=0)


@pytest.mark.skipif(not hasattr(tarfile, "data_filter"), reason="this Python has no filters to compare with")
@pytest.mark.parametrize("filter", ["data", "tar"])
def test_a_python_without_filters_unpacks_the_same(
    filter: Literal["data", "tar"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, kind, mode in (
            ("in", tarfile.DIRTYPE, 0o755),
            ("in/run", tarfile.REGTYPE, 0o4777),
            ("in/link", tarfile.SYMTYPE, 0o777),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.mode, member.linkname = kind, mode, "run" if kind == tarfile.SYMTYPE else ""
            member.uid, member.uname = 12345, "a stranger"
            tar.addfile(member)

    def unpacked(folder: Path) -> dict[str, tuple[int, int, str]]:
        packed.seek(0)
        with tarfile.open(fileobj=packed) as tar:
            unpack(tar, folder, filter=filter)
        return {
            path.name: (
                path.lstat().st_mode,
                path.lstat().st_uid,
                str(path.readlink()) if path.is_symlink() else "",
            )
            for path in folder.rglob("*")
        }

    modern = unpacked(tmp_path / "modern")
    monkeypatch.delattr(tarfile, "data_filter")
    with monkeypatch.context() as context:
        context.setattr(
            tarfile.TarFile, "extraction_filter", staticmethod(tarfile.fully_trusted_filter), raising=False
        )
        assert unpacked(tmp_path / "old") == modern
    assert stat.S_IMODE(modern["run"][0]) == 0o755
