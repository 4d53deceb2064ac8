"""Values of publication: what a release consists of, and what an index says of it. Names and digests only; bytes stay in files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aotforge.formats.untrusted_tar import TarFacts


@dataclass(frozen=True, kw_only=True)
class IndexedFile:
    """A file of a release: bytes, SHA-256 (hexadecimal), and of a .tar.gz what is in it."""

    name: str
    size: int
    sha256: str
    tar: TarFacts | None = None


@dataclass(frozen=True, kw_only=True)
class Yank:
    """A release that must not be installed any more, though its files stay. `time` is ISO 8601, UTC."""

    reason: str
    time: str


@dataclass(frozen=True, kw_only=True)
class IndexedRelease:
    """A published release. `published` is ISO 8601, UTC; `development` says what stands against it, as in MANIFEST.json."""

    name: str
    files: tuple[IndexedFile, ...]
    published: str
    verified: bool
    development: tuple[str, ...] = ()
    yanked: Yank | None = None

    def file(self, name: str) -> IndexedFile | None:
        """The file of this name."""
        return next((file for file in self.files if file.name == name), None)


@dataclass(frozen=True, kw_only=True)
class Index:
    """What a store's signed index says, sorted by name. `version` is that of the targets metadata, 0 when there is none yet."""

    version: int
    releases: tuple[IndexedRelease, ...]

    def release(self, name: str) -> IndexedRelease | None:
        """The release of this name."""
        return next((release for release in self.releases if release.name == name), None)


@dataclass(frozen=True, kw_only=True)
class LocalRelease:
    """A release folder whose files were read and found to be what its sums say. `files` are in the order of publication:
    the manifest first, because it names all the others, SHA256SUMS last.
    """

    name: str
    folder: Path
    files: tuple[IndexedFile, ...]
    verified: bool
    development: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Publication:
    """What a publisher did. `sent` and `found`: names of objects that it made, and that were there already with the same bytes.
    Seconds are wall time; `bytes_sent` and `bytes_read` what went each way. `notes`: what the user should know.
    """

    release: str
    url: str
    index_version: int
    sent: tuple[str, ...]
    found: tuple[str, ...]
    bytes_sent: int
    bytes_read: int
    seconds_sending: float
    seconds_reading: float
    dry_run: bool
    notes: tuple[str, ...]
