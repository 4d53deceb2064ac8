"""`manifests/runtime.yaml`, and the C sources of zstd that it pins: from the cache, a named file, or the package index."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from aotforge.base.manifest_reader import Manifest, load
from aotforge.errors import RuntimeBuildError, ToolchainError
from aotforge.library.pinned_source import PinnedArchive, pinned_archive, unpack_flat

SOURCE_VARIABLE = "AOTFORGE_ZSTD_SOURCE"
"""Environment variable: path of the source distribution, for machines without a package index."""

_DOWNLOAD_SECONDS = 600
_OTHER_BYTES = "DO NOT MATCH THE HASHES"
"""Of pip's message (pip._internal.exceptions.HashMismatch)."""

Version = Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$")]


class ZstdPin(Manifest):
    """The source distribution that contains the decoder's C sources; `members` are paths below its top folder."""

    package: str
    version: Version
    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+\.tar\.gz$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    members: tuple[str, ...]


class RuntimeManifest(Manifest):
    """Version and pins of the runtime library."""

    schema_version: Literal[1] = Field(alias="schema")
    version: Version
    soname: str
    zstd: ZstdPin

    @model_validator(mode="after")
    def _soname_has_version(self) -> RuntimeManifest:
        if self.soname != f"libaotriton_v2.so.{self.version}":
            raise ValueError(f"soname {self.soname} is not that of version {self.version}")
        return self


Download = Callable[[ZstdPin, Path], None]
"""Puts the pinned file into a folder; raises ToolchainError."""


def load_runtime_manifest(folder: Path) -> RuntimeManifest:
    """`folder`/runtime.yaml. Raises ManifestError."""
    return load(folder / "runtime.yaml", RuntimeManifest)


def unpack_zstd(
    pin: ZstdPin,
    *,
    cache: Path,
    folder: Path,
    environment: Mapping[str, str],
    download: Download | None = None,
) -> Path:
    """Unpacks the pinned members flat into `folder` and returns it.

    Raises ToolchainError when the archive cannot be fetched, RuntimeBuildError when a named or fetched file is not the pinned one.
    """
    pinned = PinnedArchive(
        file=pin.file, sha256=pin.sha256, variable=SOURCE_VARIABLE, manifest="manifests/runtime.yaml"
    )
    fetch = functools.partial(download or pip_download, pin)
    archive = pinned_archive(pinned, cache=cache, environment=environment, fetch=fetch)
    return unpack_flat(archive, folder, top=pin.file.removesuffix(".tar.gz"), members=pin.members)


def pip_download(pin: ZstdPin, folder: Path) -> None:
    """Fetches the source distribution with pip and the caller's index settings.

    pip builds a source distribution's metadata, which runs code of it; the hash makes pip compare the bytes first. Raises
    ToolchainError, RuntimeBuildError for other bytes than the pinned ones.
    """
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{pin.package}=={pin.version} --hash=sha256:{pin.sha256}\n", encoding="ascii")
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet", "--no-deps"]
    command += [
        "--no-binary",
        pin.package,
        "--dest",
        str(folder),
        "--require-hashes",
        "-r",
        str(requirements),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False)
        output, failed = done.stderr or done.stdout, done.returncode != 0
    except (OSError, subprocess.TimeoutExpired) as error:
        output, failed = str(error), True
    hint = f"put the file (SHA-256 {pin.sha256}) into any folder and set {SOURCE_VARIABLE} to its path"
    if failed and _OTHER_BYTES in output:
        raise RuntimeBuildError(
            f"the index has another {pin.file} than the pinned one (SHA-256 {pin.sha256})",
            cause="a file that was replaced on the index, or a mirror that cannot be trusted",
            hint=hint,
        )
    if failed:
        lines = output.strip().splitlines()
        raise ToolchainError(
            f"{pin.file} cannot be fetched: {lines[-1] if lines else 'pip failed'}",
            cause="no reachable package index",
            hint=hint,
        )
