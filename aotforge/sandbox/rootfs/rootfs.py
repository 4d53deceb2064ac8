"""Values of the containers room: a finished root filesystem, and where its files lie in the cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class RootfsImage:
    """One finished root filesystem.

    `digest` is the SHA-256 (hex) of the uncompressed, normalised tar at `tar`: the root's identity. `python` is the absolute path of
    a Python >= 3.9 inside; `environment` is what a process inside should have (PATH and the like).
    """

    name: str
    digest: str
    tar: Path
    python: str
    environment: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class CachePaths:
    """The folders below `<cache>/containers`; every name in them is a SHA-256."""

    cache: Path

    @property
    def base(self) -> Path:
        """Everything of this room."""
        return self.cache / "containers"

    @property
    def store(self) -> Path:
        """Packages and wheels, by the digest of the file."""
        return self.base / "store"

    def path(self, sha256: str) -> Path:
        """One file of the store."""
        return self.store / sha256

    def tar(self, digest: str) -> Path:
        """A finished root."""
        return self.base / "roots" / f"{digest}.tar"

    def record(self, digest: str) -> Path:
        """What is known of a finished root's file: size and time when it was last read whole."""
        return self.base / "roots" / f"{digest}.json"

    def tree(self, digest: str) -> Path:
        """The same root as a folder."""
        return self.base / "trees" / digest

    def archive(self, digest: str) -> Path:
        """The same root as an archive that `docker load` takes."""
        return self.base / "archives" / f"{digest}.tar"
