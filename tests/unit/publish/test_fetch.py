"""Downloads in a folder with files of another user, as a backup restores a cache with its owners."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from aotforge.publish.fetch import fetch_file
from aotforge.publish.index import IndexedFile
from aotforge.publish.stores.directory import DirectoryStore

OTHER = 64042
CONTENT = b"the release's"
FILE = IndexedFile(name="x", size=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())


@pytest.mark.parametrize("kind", ["mode", "owner"])
@pytest.mark.parametrize(("suffix", "size"), [("", len(CONTENT)), (".part", len(CONTENT)), (".part", 5)])
def test_files_of_others_are_downloaded_again(tmp_path: Path, kind: str, suffix: str, size: int) -> None:
    """Their owner could change them after they were compared. Nothing is written into them."""
    if kind == "owner" and os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    (tmp_path / "x").write_bytes(CONTENT)
    theirs = tmp_path / "downloads" / f"{FILE.sha256}{suffix}"
    theirs.parent.mkdir()
    theirs.write_bytes(CONTENT[:size])
    if kind == "owner":
        os.chown(theirs, OTHER, OTHER)
    else:
        theirs.chmod(0o666)
    with theirs.open("r+b") as held:
        got = fetch_file(DirectoryStore(tmp_path), "x", FILE, theirs.parent)
        assert held.read() == CONTENT[:size]
        os.pwrite(held.fileno(), b"planted", 0)
    assert got.read_bytes() == CONTENT
    assert (got.stat().st_uid, got.stat().st_mode & 0o777) == (os.geteuid(), 0o644)
    assert list(theirs.parent.iterdir()) == [got]


def test_a_link_in_the_place_of_a_download(tmp_path: Path) -> None:
    """It may lead to a file that its owner can change."""
    (tmp_path / "x").write_bytes(CONTENT)
    (tmp_path / "elsewhere").write_bytes(CONTENT)
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / FILE.sha256).symlink_to(tmp_path / "elsewhere")
    got = fetch_file(DirectoryStore(tmp_path), "x", FILE, tmp_path / "downloads")
    assert not got.is_symlink() and got.read_bytes() == CONTENT
