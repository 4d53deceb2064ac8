"""The C sources of zstd, pinned by SHA-256 in manifests/runtime.yaml.

The archive comes from the cache, from a file that an environment variable names, or from the package index.
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from aotforge.base.files import make_folders, output_errors, read_bytes, write_atomic
from aotforge.base.manifest_reader import Manifest, load
from aotforge.errors import RuntimeBuildError, ToolchainError
from aotforge.formats.api_level import LEVEL_PATTERN
from aotforge.run.pip_download import SOURCES, run_pip_download

_PIP_SECONDS = 600
_OTHER_BYTES = "DO NOT MATCH THE HASHES"
"""Of pip's message (pip._internal.exceptions.HashMismatch)."""
_ARCHIVE_LIMIT = 64 * 2**20

Version = Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ZstdPin(Manifest):
    """The source distribution with the C sources, `members` below its top folder."""

    package: str
    version: Version
    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+\.tar\.gz$")]
    sha256: Sha256
    members: tuple[str, ...]


class RuntimeManifest(Manifest):
    """`manifests/runtime.yaml`: default API level and pins of the runtime library."""

    schema_version: Literal[1] = Field(alias="schema")
    api_level: Annotated[str, Field(pattern=LEVEL_PATTERN)]
    zstd: ZstdPin


def load_runtime_manifest(folder: Path) -> RuntimeManifest:
    """`folder`/runtime.yaml. Raises ManifestError."""
    return load(folder / "runtime.yaml", RuntimeManifest)


def unpack_zstd(pin: ZstdPin, *, cache: Path, folder: Path, environment: Mapping[str, str]) -> Path:
    """Unpacks the pinned C sources of zstd into `folder`, without their own folders, and returns it.

    Raises ToolchainError when the archive cannot be fetched, RuntimeBuildError when a named or fetched file
    is not the pinned one, OutputError.
    """
    data = _archive(pin, cache, environment.get(SOURCES, "").split())
    with output_errors(folder):
        make_folders(folder)
        with tarfile.open(fileobj=BytesIO(data)) as tar:  # it has the pinned bytes, so it has the members
            for member in pin.members:
                content = tar.extractfile(f"{pin.file.removesuffix('.tar.gz')}/{member}")
                assert content is not None
                (folder / Path(member).name).write_bytes(content.read())
    return folder


def _archive(pin: ZstdPin, cache: Path, sources: Sequence[str]) -> bytes:
    """The archive of the cache, of a folder in `sources`, or of the index; a damaged one is replaced."""
    kept = cache / "sources" / pin.sha256 / pin.file
    with suppress(ToolchainError, RuntimeBuildError):
        return _verified(pin, kept)
    with tempfile.TemporaryDirectory(prefix="aotforge-sources-") as folder:
        places = [path for place in sources if (path := Path(place, pin.file)).is_file()]
        if not places:
            pip_download(pin, Path(folder))
        data = _verified(pin, [*places, Path(folder, pin.file)][0])
        write_atomic(kept, data)
    return data


def _verified(pin: ZstdPin, path: Path) -> bytes:
    data = read_bytes(path, ToolchainError, hint=f"name a folder with {pin.file} in {SOURCES}")
    if (digest := hashlib.sha256(data).hexdigest()) != pin.sha256:
        raise RuntimeBuildError(
            f"{path} is not the pinned {pin.file}: SHA-256 {digest} instead of {pin.sha256}",
            cause="a damaged download, or a file that was replaced where it is published",
            hint="remove it and build again; manifests/runtime.yaml has the pin",
        )
    return data


_BACKEND = "setuptools==84.2.1"
_BACKEND_SHA256 = "ca140b45d5325a9478f880e351484f62fef15f336462e449ca0c03c873d589c2"
"""The build backend of zstandard's source distribution."""


def pip_download(pin: ZstdPin, folder: Path) -> None:
    """Fetches the source distribution with pip and the caller's index settings.

    pip makes a source distribution's metadata, which executes code of it and of its build backend; both have
    a hash, which pip compares first. Left to itself, pip installs the newest backend of the index. Raises
    ToolchainError, RuntimeBuildError for other bytes than the pinned ones.
    """
    with tempfile.TemporaryDirectory(prefix="aotforge-backend-") as backend:
        wheels, modules = Path(backend) / "wheels", Path(backend) / "modules"
        wheels.mkdir()
        common: Any = {"limit": _ARCHIVE_LIMIT, "seconds": _PIP_SECONDS}
        what = _BACKEND
        failed = run_pip_download(_BACKEND, [_BACKEND_SHA256], wheels, "--only-binary=:all:", **common)
        if not failed:
            for wheel in wheels.glob("*.whl"):
                shutil.unpack_archive(wheel, modules, "zip")
            what, options = pin.file, ("--no-binary", pin.package, "--no-build-isolation")
            requirement = f"{pin.package}=={pin.version}"
            failed = run_pip_download(requirement, [pin.sha256], folder, *options, modules=modules, **common)
    hint = f"put the file (SHA-256 {pin.sha256}) into a folder and name that in {SOURCES}"
    if _OTHER_BYTES in failed:
        raise RuntimeBuildError(
            f"the index has another {what} than the pinned one",
            cause="a file that was replaced on the index, or a mirror that cannot be trusted",
            hint=hint,
        )
    if failed:
        raise ToolchainError(
            f"{what} cannot be fetched: {failed.splitlines()[-1]}",
            cause="no reachable package index",
            hint=hint,
        )
