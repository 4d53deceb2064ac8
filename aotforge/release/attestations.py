"""Values of the papers that a release travels with: what it was made from, and what its files are."""

from __future__ import annotations

from dataclasses import dataclass

from aotforge.toolchain.triton import Toolchain

MANIFEST = "MANIFEST.json"
DOCUMENT = "release.json"
SBOM = "sbom.cdx.json"
PROVENANCE = "provenance.dsse.json"
SIGNATURE = "SHA256SUMS.sig"
UNSIGNED = frozenset({PROVENANCE, SIGNATURE})
"""Files that depend on a key, and so stand outside the digests that a second build must give again."""


@dataclass(frozen=True, kw_only=True)
class BuildTools:
    """The tools whose output a release is. `roots` are container root filesystems, (name, SHA-256 of the tar), none for a build on the bare
    machine; `compiler` made the runtime; `zstd` is (file, SHA-256) of the sources compiled into it; `zlib` made the .gz around the tars."""

    toolchain: Toolchain
    python: str
    compiler: str
    zstd: tuple[str, str]
    zlib: str
    executor: str
    roots: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What somebody needs to make a release again: the commit of its sources, the request, the time in its tarballs, the tools."""

    release: str
    commit: str
    archs: tuple[str, ...]
    profile: str
    platforms: tuple[str, ...]
    epoch: int
    tools: BuildTools


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """A file of a release: bytes, SHA-256, and for an archive the SHA-256 of the uncompressed tar and what compressed it."""

    name: str
    size: int
    sha256: str
    tar_sha256: str = ""
    compressor: str = ""
