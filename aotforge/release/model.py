"""Values that make up a release: file names, image records, packs, files, platform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aotforge.compile.model import Resources
    from aotforge.pack.model import ImagePack
    from aotforge.plan.model import JobKey
    from aotforge.verify.verdict import Verdict

MANIFEST = "MANIFEST.json"
RELEASE_JSON = "release.json"
SBOM = "sbom.cdx.json"
PROVENANCE = "provenance.dsse.json"
SIGNATURE = "SHA256SUMS.sig"
UNSIGNED = frozenset({PROVENANCE, SIGNATURE})
"""Files that depend on a key: not covered by the digests that a second build must reproduce."""


@dataclass(frozen=True, kw_only=True)
class PlatformTag:
    """The platform that a library runs on, measured with auditwheel's policies, e.g. manylinux_2_28_x86_64.

    `measured` is the oldest platform that fits, `promised` the manifest's. `tag`, used in file names, is the promised
    one when the library `reaches` it, else the measured one. `reasons`: what keeps it from the promised platform.
    """

    measured: str
    promised: str
    tag: str
    reaches: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ImageRecord:
    """Result of one compile job. `digest`: the image's SHA-256, hexadecimal; `verdict` is None when it was not executed."""

    label: str
    key: JobKey
    digest: str
    resources: Resources
    verdict: Verdict | None = None

    @property
    def passed(self) -> bool:
        """True when the image was executed and passed, and the verdict belongs to exactly these bytes."""
        verdict = self.verdict
        return verdict is not None and verdict.outcome == "passed" and verdict.digest == self.digest


@dataclass(frozen=True, kw_only=True)
class PackInput:
    """An image pack, the assembly texts by image digest (SHA-256, hexadecimal), and a record per compile job."""

    pack: ImagePack
    assembly: Mapping[str, str]
    records: tuple[ImageRecord, ...]


@dataclass(frozen=True, kw_only=True)
class ReleaseFile:
    """A file of a release: size in bytes, SHA-256; for archives the uncompressed tar's SHA-256 and the compressor."""

    name: str
    size: int
    sha256: str
    tar_sha256: str = ""
    compressor: str = ""


@dataclass(frozen=True, kw_only=True)
class Release:
    """An assembled release folder. `development`: why it must not be published, empty when it may. `verified`: every
    image has passed. `fresh` is False when an earlier build had already made exactly this."""

    name: str
    folder: Path
    files: tuple[ReleaseFile, ...]
    platform: PlatformTag
    development: tuple[str, ...]
    verified: bool
    fresh: bool
