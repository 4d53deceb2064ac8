"""Values of publication: names and digests of releases, the index, reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from aotforge.formats.untrusted_tar import TarFacts


@dataclass(frozen=True, kw_only=True)
class IndexedFile:
    """A file of a release: bytes, SHA-256 (hexadecimal), and `tar` of a .tar.gz."""

    name: str
    size: int
    sha256: str
    tar: TarFacts | None = None


@dataclass(frozen=True, kw_only=True)
class Yank:
    """Mark of a release that must not be installed, though its files stay. `time` is ISO 8601, UTC."""

    reason: str
    time: str


@dataclass(frozen=True, kw_only=True)
class IndexedRelease:
    """A published release. `published` is ISO 8601, UTC; `development`: reasons against its use, as in MANIFEST.json."""

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
    """A store's signed index, sorted by name. `version` is that of the targets metadata, 0 for an empty store."""

    version: int
    releases: tuple[IndexedRelease, ...]

    def release(self, name: str) -> IndexedRelease | None:
        """The release of this name."""
        return next((release for release in self.releases if release.name == name), None)


@dataclass(frozen=True, kw_only=True)
class LocalRelease:
    """A release folder that matches its sums. `files` are in the order of publication: the manifest, which names all
    the others, first, SHA256SUMS last."""

    name: str
    folder: Path
    files: tuple[IndexedFile, ...]
    verified: bool
    development: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Publication:
    """Report of a publication. `sent` and `found`: objects that were created, and that existed with the same bytes.
    Seconds are wall time; `bytes_sent` and `bytes_read` the bytes in each direction; `notes`: warnings for the user."""

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


@dataclass(kw_only=True)
class UploadStats:
    """Running totals of uploads, with the fields of Publication."""

    sent: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    bytes_sent: int = 0
    bytes_read: int = 0
    seconds_sending: float = 0.0
    seconds_reading: float = 0.0

    def report(
        self, release: str, url: str, index: int, notes: tuple[str, ...], *, dry_run: bool = False
    ) -> Publication:
        """The totals of publishing `release` at `url` under index version `index`."""
        totals = vars(self) | {"sent": tuple(self.sent), "found": tuple(self.found)}
        return Publication(
            release=release, url=url, index_version=index, notes=notes, dry_run=dry_run, **totals
        )
