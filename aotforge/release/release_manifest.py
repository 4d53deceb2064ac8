"""Model of `manifests/release.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from aotforge.base.manifest_reader import Manifest, load
from aotforge.errors import ManifestError
from aotforge.pack.model import Compressor

EPOCH_LIMIT = 8**11 - 1
"""The greatest time that a tarball's member can have: eleven octal digits."""

_LibraryName = Annotated[str, Field(pattern=r"^libaotriton_v2\.so(\.[0-9]+){3}$")]


class ReleaseManifest(Manifest):
    """The file, whose comments explain each key."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    api_level: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+(\.[0-9]+)?b$")]
    revision: Annotated[int, Field(ge=1)]
    soname: _LibraryName
    older_names: tuple[_LibraryName, ...]
    manylinux: Annotated[str, Field(pattern=r"^manylinux_2_[0-9]+$")]
    rocm: Annotated[tuple[Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+$")], ...], Field(min_length=1)]
    epoch: Annotated[int, Field(ge=0, le=EPOCH_LIMIT)]
    compressor: Compressor

    @model_validator(mode="after")
    def _no_repetition(self) -> ReleaseManifest:
        names = (self.soname, *self.older_names)
        if len(set(names)) != len(names) or len(set(self.rocm)) != len(self.rocm):
            raise ValueError("a library name or a ROCm version is listed twice")
        return self

    @property
    def name(self) -> str:
        """The release's name, e.g. 0.11.2b-r1."""
        return f"{self.api_level}-r{self.revision}"


def load_release_manifest(path: Path) -> ReleaseManifest:
    """Reads manifests/release.yaml. Raises ManifestError naming file, line and key."""
    return load(path, ReleaseManifest)


def member_time(manifest: ReleaseManifest, environment: Mapping[str, str]) -> int:
    """Time of tarball members: SOURCE_DATE_EPOCH (reproducible-builds.org) if set, else the manifest's. Raises ManifestError."""
    text = environment.get("SOURCE_DATE_EPOCH", "")
    if not text:
        return manifest.epoch
    if not (text.isascii() and text.isdigit()) or int(text) > EPOCH_LIMIT:
        raise ManifestError(
            f"SOURCE_DATE_EPOCH is {text!r}, not a time from 0 to {EPOCH_LIMIT}",
            hint="set it to seconds since 1970, or unset it",
        )
    return int(text)
