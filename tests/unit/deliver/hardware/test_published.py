"""Files of a published pack as a release folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

from aotforge.deliver.install.install_release import fetch_pack
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


def test_the_archives_of_one_pack(tmp_path: Path) -> None:
    assert {path.name: path.read_text() for path in _fetch(tmp_path).iterdir()} == {
        name: f"content of {name}" for name in NAMES
    }
