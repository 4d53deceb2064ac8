"""File names of a release's documents, and the origin that they attest."""

from __future__ import annotations

from dataclasses import dataclass

from aotforge.toolchain.triton import Toolchain

MANIFEST = "MANIFEST.json"
RELEASE_JSON = "release.json"
SBOM = "sbom.cdx.json"
PROVENANCE = "provenance.dsse.json"
SIGNATURE = "SHA256SUMS.sig"
UNSIGNED = frozenset({PROVENANCE, SIGNATURE})
"""Files that depend on a key: not covered by the digests that a second build must reproduce."""


@dataclass(frozen=True, kw_only=True)
class BuildTools:
    """Tools whose output a release is. `roots`: rootfs images as (name, SHA-256 of the tar), none for a build on the
    host; `compiler` made the runtime; `zstd`: (file, SHA-256) of the sources compiled into it; `zlib` made the .gz."""

    toolchain: Toolchain
    python: str
    compiler: str
    zstd: tuple[str, str]
    zlib: str
    executor: str
    roots: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The inputs that reproduce a release: commit, request, time of the archives' members, tools."""

    release: str
    commit: str
    archs: tuple[str, ...]
    profile: str
    platforms: tuple[str, ...]
    epoch: int
    tools: BuildTools
