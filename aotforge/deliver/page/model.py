"""What the page says of a release, ready to be shown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Download:
    """A file: where it is relative to the page, bytes, SHA-256, and whom it is for."""

    name: str
    href: str
    size: int
    sha256: str
    note: str


@dataclass(frozen=True, kw_only=True)
class PackLine:
    """An image pack: its chips, how many images, how many of them passed on the virtual GPU, its archives."""

    name: str
    archs: tuple[str, ...]
    images: int
    passed: int
    runs: int
    spilling: int
    downloads: tuple[Download, ...]


@dataclass(frozen=True, kw_only=True)
class ReleasePage:
    """A release. `yanked` is the reason why nobody may install it, "" for all others; `base_url` is where the files are, with a slash."""

    name: str
    commit: str
    compiler: str
    triton: str
    executor: str
    packs: tuple[PackLine, ...]
    runtimes: tuple[Download, ...]
    windows: tuple[Download, ...]
    papers: tuple[Download, ...]
    signed: bool
    yanked: str
    base_url: str
