"""Values that make up a release: `manifests/release.yaml`, file names, packs, image records, origin."""

from __future__ import annotations

import platform
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from aotforge.base.manifest_reader import Manifest, load
from aotforge.errors import ManifestError, UnknownNameError
from aotforge.formats.api_level import (
    LEVEL_PATTERN,
    LIBRARY_PATTERN,
    feature_level,
    library_level,
    library_name,
)
from aotforge.pack.model import Compressor

if TYPE_CHECKING:
    from aotforge.compile.model import Resources
    from aotforge.pack.model import ImagePack
    from aotforge.plan.model import JobKey
    from aotforge.toolchain.triton import Toolchain
    from aotforge.verify.verdict import Verdict

MANIFEST = "MANIFEST.json"
RELEASE_JSON = "release.json"
SBOM = "sbom.cdx.json"
COVERAGE = "COVERAGE.md"
PROVENANCE = "provenance.dsse.json"
SIGSTORE = "provenance.sigstore.json"
SIGNATURE = "SHA256SUMS.sig"
UNSIGNED = frozenset({PROVENANCE, SIGSTORE, SIGNATURE})
"""Files that depend on a key: not covered by the digests that a second build must reproduce."""

EPOCH_LIMIT = 8**11 - 1
"""The greatest time that a tarball's member can have: eleven octal digits."""

_LibraryName = Annotated[str, Field(pattern=LIBRARY_PATTERN)]


_Rocm = Annotated[tuple[Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+$")], ...], Field(min_length=1)]


class OtherLevel(Manifest):
    """What a release of another API level than the default one has of its own."""

    api_level: Annotated[str, Field(pattern=LEVEL_PATTERN)]
    revision: Annotated[int, Field(ge=1)]
    other_names: tuple[_LibraryName, ...]
    rocm: _Rocm

    @property
    def name(self) -> str:
        """The release's name, e.g. 0.11.2b-r1."""
        return f"{self.api_level}-r{self.revision}"


class ReleaseManifest(OtherLevel):
    """The file, whose comments explain each key."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    soname: _LibraryName
    manylinux: Annotated[str, Field(pattern=r"^manylinux_2_[0-9]+$")]
    epoch: Annotated[int, Field(ge=0, le=EPOCH_LIMIT)]
    compressor: Compressor
    other_levels: tuple[OtherLevel, ...] = ()

    @model_validator(mode="after")
    def _no_repetition(self) -> ReleaseManifest:
        names = (self.soname, *self.other_names)
        if len(set(names)) != len(names) or len(set(self.rocm)) != len(self.rocm):
            raise ValueError("a library name or a ROCm version is listed twice")
        if self.soname != library_name(self.api_level):
            raise ValueError(f"soname {self.soname} is not that of {self.api_level}")
        own = (self.api_level, self.other_names)
        for level, others in (own, *((other.api_level, other.other_names) for other in self.other_levels)):
            if strange := [name for name in others if library_level(name) != feature_level(level)]:
                raise ValueError(f"{strange[0]} does not belong to {level}, whose interface differs")
        return self

    @property
    def api_levels(self) -> tuple[str, ...]:
        """Every API level that this checkout makes, the default one first."""
        return (self.api_level, *(other.api_level for other in self.other_levels))

    def at(self, version: str | None) -> ReleaseManifest:
        """Settings of an API level (0.13b), a release (0.13b-r1), or the default. Raises UnknownNameError."""
        if version is None or version in {self.api_level, self.name}:
            return self
        for other in self.other_levels:
            if version in {other.api_level, f"{other.api_level}-r{other.revision}"}:
                own = {name: getattr(other, name) for name in OtherLevel.model_fields}
                return self.model_copy(
                    update=own | {"soname": library_name(other.api_level), "other_levels": ()}
                )
        raise UnknownNameError(
            f"version {version} cannot be made from these sources",
            cause=f"API levels: {', '.join(self.api_levels)}",
            hint="manifests/release.yaml has them with their revisions",
        )


def load_release_manifest(path: Path, version: str | None = None) -> ReleaseManifest:
    """Reads manifests/release.yaml, at the level of `version`. Raises ManifestError, UnknownNameError."""
    return load(path, ReleaseManifest).at(version)


def member_time(manifest: ReleaseManifest, environment: Mapping[str, str]) -> int:
    """Time of tarball members: SOURCE_DATE_EPOCH if set, else the manifest's. Raises ManifestError."""
    text = environment.get("SOURCE_DATE_EPOCH", "")
    if not text:
        return manifest.epoch
    if not (text.isascii() and text.isdigit()) or int(text) > EPOCH_LIMIT:
        raise ManifestError(
            f"SOURCE_DATE_EPOCH is {text!r}, not a time from 0 to {EPOCH_LIMIT}",
            hint="set it to seconds since 1970, or unset it",
        )
    return int(text)


@dataclass(frozen=True, kw_only=True)
class PlatformTag:
    """The platform that a library runs on, measured with auditwheel's policies, e.g. manylinux_2_28_x86_64.

    `measured`: the oldest that fits; `tag`, of file names, is the `promised` one if the library `reaches` it,
    else `measured`; `reasons`: what keeps it from there.
    """

    measured: str
    promised: str
    tag: str
    reaches: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ImageRecord:
    """Result of one compile job. `digest`: the image's SHA-256; `verdict`: None when it was not executed."""

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
    """An image pack, assembly texts by image digest (SHA-256), and a record per compile job."""

    pack: ImagePack
    assembly: Mapping[str, str]
    records: tuple[ImageRecord, ...]


@dataclass(frozen=True, kw_only=True)
class ReleaseFile:
    """A file of a release; of archives also SHA-256 of the uncompressed tar, and the compressor."""

    name: str
    size: int
    sha256: str
    tar_sha256: str = ""
    compressor: str = ""


@dataclass(frozen=True, kw_only=True)
class BuildTools:
    """Tools whose output a release is. `roots`: rootfs images (name, SHA-256 of the tar), none on the host.

    `compiler` made the runtime; `zstd`: (file, SHA-256) of sources compiled into it; `zlib` made the .gz.
    """

    toolchain: Toolchain
    python: str = ".".join(platform.python_version_tuple()[:2])
    compiler: str
    zstd: tuple[str, str]
    zlib: str = zlib.ZLIB_RUNTIME_VERSION
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
