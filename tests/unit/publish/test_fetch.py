"""Downloads in a folder that has other files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from aotforge.publish.fetch import fetch_file
from aotforge.publish.index import IndexedFile
from aotforge.publish.stores.directory import DirectoryStore

CONTENT = b"the release's"
FILE = IndexedFile(name="x", size=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())


def test_a_link_in_the_place_of_a_download(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(CONTENT)
    (tmp_path / "elsewhere").write_bytes(CONTENT)
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / FILE.sha256).symlink_to(tmp_path / "elsewhere")
    got = fetch_file(DirectoryStore(tmp_path), "x", FILE, tmp_path / "downloads")
    assert not got.is_symlink() and got.read_bytes() == CONTENT
