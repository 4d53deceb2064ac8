"""Files of a published pack, whose images a GPU executes: what was compared is what is read."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from aotforge.deliver.hardware.published import fetch_pack
from aotforge.errors import TrustError
from aotforge.publish import fetch
from aotforge.publish.index import Index, IndexedFile, IndexedRelease
from aotforge.publish.stores.directory import DirectoryStore

RELEASE = "0.11.2b-r1"
NAMES = (
    "SHA256SUMS",
    "MANIFEST.json",
    *(f"aotriton-{RELEASE}-{kind}-amd-gfx908.tar.gz" for kind in ("images", "asm")),
)


def _fetch(tmp_path: Path) -> Path:
    files = []
    (tmp_path / "store" / RELEASE).mkdir(parents=True)
    for name in NAMES:
        data = f"content of {name}".encode()
        (tmp_path / "store" / RELEASE / name).write_bytes(data)
        files.append(IndexedFile(name=name, size=len(data), sha256=hashlib.sha256(data).hexdigest()))
    release = IndexedRelease(name=RELEASE, files=tuple(files), published="2026-11-22", verified=True)
    got, _ = fetch_pack(
        DirectoryStore(tmp_path / "store"),
        Index(version=1, releases=(release,)),
        version=None,
        arch="gfx908",
        pack="amd-gfx908",
        downloads=tmp_path / "downloads",
        folder=tmp_path / "got",
    )
    return got


def _change(path: Path) -> None:
    """As its owner does, in place."""
    with path.open("r+b") as file:
        file.write(b"planted")


def test_a_download_that_is_changed_after_its_check(tmp_path: Path) -> None:
    """A release's files are read again, and its images executed, under the index's signature."""
    got = _fetch(tmp_path)
    for download in (tmp_path / "downloads").iterdir():
        _change(download)
    assert {path.name: path.read_text() for path in got.iterdir()} == {
        name: f"content of {name}" for name in NAMES
    }


@pytest.mark.parametrize(
    "change", [_change, lambda path: os.truncate(path, 5), lambda path: os.truncate(path, 99)]
)
def test_a_download_that_is_changed_before_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: object
) -> None:
    plain = fetch.fetch_file

    def fetch_file(*arguments: object, **named: object) -> Path:
        path = plain(*arguments, **named)  # type: ignore[arg-type]
        change(path)  # type: ignore[operator]
        return path

    monkeypatch.setattr(fetch, "fetch_file", fetch_file)
    with pytest.raises(TrustError, match=r"does not match the index.*\n.*changed after it was downloaded"):
        _fetch(tmp_path)
