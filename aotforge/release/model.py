"""Values of the release room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.compile.model import Resources
from aotforge.pack.model import ImagePack
from aotforge.plan.model import JobKey
from aotforge.verify.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class PlatformTag:
    """The platform that a library runs on, measured with auditwheel's policies.

    `measured` is the oldest platform that it fits, `promised` the manifest's, `tag` what file names say:
    the promised one when the library reaches it, else the measured one. All with the machine, as in
    manylinux_2_28_x86_64. `reasons` say what keeps the library from the promised platform.
    """

    measured: str
    promised: str
    tag: str
    reaches: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ImageRecord:
    """What one compile job gave: the image's SHA-256 (hexadecimal), what it asks of its chip, and what became of it on the
    virtual GPU; None when nobody looked.
    """

    label: str
    key: JobKey
    digest: str
    resources: Resources
    verdict: Verdict | None = None


@dataclass(frozen=True, kw_only=True)
class PackInput:
    """An image pack, the assembly text of its images by image digest (SHA-256, hexadecimal), and a record per compile job."""

    pack: ImagePack
    assembly: Mapping[str, str]
    records: tuple[ImageRecord, ...]


@dataclass(frozen=True, kw_only=True)
class ReleaseFile:
    """A file of a release: size in bytes and SHA-256; `tar_sha256` of the uncompressed tar, empty for other
    files.
    """

    name: str
    size: int
    sha256: str
    tar_sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class Release:
    """A release folder, verified. `development` says why it must not be published as it is; empty when
    nothing stands against it. `verified`: every image has passed on the virtual GPU. `fresh` is False when an earlier build had
    already made exactly this.
    """

    name: str
    folder: Path
    files: tuple[ReleaseFile, ...]
    platform: PlatformTag
    development: tuple[str, ...]
    verified: bool
    fresh: bool
