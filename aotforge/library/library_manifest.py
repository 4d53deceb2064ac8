"""Model of `manifests/runtime.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from aotforge.base.manifest_reader import Manifest, load

Version = Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$")]


class ZstdPin(Manifest):
    """The source distribution that the decoder's C sources come from; `members` are paths below its top folder."""

    package: str
    version: Version
    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+\.tar\.gz$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    members: tuple[str, ...]


class RuntimeManifest(Manifest):
    """How the runtime library is built."""

    schema_version: Literal[1] = Field(alias="schema")
    version: Version
    soname: str
    zstd: ZstdPin

    @model_validator(mode="after")
    def _soname_has_version(self) -> RuntimeManifest:
        if self.soname != f"libaotriton_v2.so.{self.version}":
            raise ValueError(f"soname {self.soname} is not that of version {self.version}")
        return self


def load_runtime_manifest(folder: Path) -> RuntimeManifest:
    """`folder`/runtime.yaml. Raises ManifestError."""
    return load(folder / "runtime.yaml", RuntimeManifest)
