"""C sources of other projects, pinned by SHA-256 in manifests: zstd and dlfcn-win32.

An archive comes from the cache, from a file that an environment variable names, or from where it is published.
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from aotforge.base.files import make_folders, output_errors, read_bytes, write_atomic
from aotforge.base.manifest_reader import Manifest, load
from aotforge.errors import RuntimeBuildError, ToolchainError
from aotforge.formats.api_level import LEVEL_PATTERN
from aotforge.run.pip_download import run_pip_download

ZSTD_VARIABLE = "AOTFORGE_ZSTD_SOURCE"
"""Environment variable: path of zstandard's source distribution, for machines without a package index."""

DLFCN_VARIABLE = "AOTFORGE_DLFCN_SOURCE"
"""Environment variable: path of dlfcn-win32's archive, for machines without a network."""

_PIP_SECONDS = 600
_OTHER_BYTES = "DO NOT MATCH THE HASHES"
"""Of pip's message (pip._internal.exceptions.HashMismatch)."""
_ARCHIVE_LIMIT = 64 * 2**20

Version = Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ZstdPin(Manifest):
    """The source distribution that contains the decoder's C sources; `members` are paths below its top folder."""

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


class DlfcnPin(Manifest):
    """A source archive of dlfcn-win32. `source`: URL, or path (a relative one starts at the repository's root)."""

    version: Version
    source: Annotated[str, Field(min_length=1)]
    sha256: Sha256


class DlManifest(Manifest):
    """`manifests/dl.yaml`: pin of dlfcn-win32; without it, dl is built from `runtime/dl`."""

    schema_version: Literal[1] = Field(alias="schema")
    dlfcn_win32: DlfcnPin | None = None


@dataclass(frozen=True, kw_only=True)
class DlSource:
    """`original`: folder with dlfcn.c and dlfcn.h that replace runtime/dl, or None. `name`: for people."""

    name: str
    original: Path | None

    @property
    def licence(self) -> Path | None:
        """The licence file of `original`, if it has one."""
        file = self.original / "COPYING" if self.original is not None else None
        return file if file is not None and file.exists() else None


@dataclass(frozen=True, kw_only=True)
class PinnedArchive:
    """`<top>.tar.gz` with the folder `top`. `variable`: environment variable that may name a copy; `manifest`: file with the pin;
    `fetch` puts the archive into a folder or raises ToolchainError. Members in `optional` may be missing."""

    top: str
    sha256: str
    variable: str
    manifest: str
    fetch: Callable[[Path], None]
    members: tuple[str, ...]
    optional: tuple[str, ...] = ()

    def unpack(self, folder: Path, *, cache: Path, environment: Mapping[str, str]) -> Path:
        """Unpacks the members into `folder`, without their own folders, and returns it.

        Raises ToolchainError when the archive cannot be fetched, RuntimeBuildError when a named or fetched file is not the pinned
        one or lacks a member, OutputError.
        """
        data = self._cached(cache, environment.get(self.variable, ""))
        with output_errors(folder):
            make_folders(folder)
        try:
            with tarfile.open(fileobj=BytesIO(data)) as tar:
                names = set(tar.getnames())
                found = [name for name in self.optional if f"{self.top}/{name}" in names]
                for member in (*self.members, *found):
                    content = tar.extractfile(f"{self.top}/{member}")
                    if content is None:
                        raise RuntimeBuildError(f"{self.top}.tar.gz: {member} is not a regular file")
                    target, text = folder / Path(member).name, content.read()
                    with output_errors(target):  # a full disk does not make the archive invalid
                        target.write_bytes(text)
        except KeyError as error:
            raise RuntimeBuildError(
                f"{self.top}.tar.gz has no {error.args[0] if error.args else 'such member'}",
                cause="the pin selects another archive than the manifest describes",
                hint="pin the release's own source archive",
            ) from error
        except (tarfile.TarError, EOFError, OSError) as error:
            raise RuntimeBuildError(f"{self.top}.tar.gz cannot be unpacked: {error}") from error
        return folder

    def _cached(self, cache: Path, named: str) -> bytes:
        """The archive, kept as `cache`/sources/<sha256>/<file>; a damaged one there is replaced."""
        kept = cache / "sources" / self.sha256 / f"{self.top}.tar.gz"
        with suppress(ToolchainError, RuntimeBuildError):
            return self._verified(kept)
        with tempfile.TemporaryDirectory(prefix="aotforge-sources-") as folder:
            if not named:
                self.fetch(Path(folder))
            data = self._verified(Path(named) if named else Path(folder) / kept.name)
            write_atomic(kept, data)
        return data

    def _verified(self, path: Path) -> bytes:
        hint = f"set {self.variable} to a copy of {self.top}.tar.gz"
        data = read_bytes(path, ToolchainError, hint=hint)
        if (digest := hashlib.sha256(data).hexdigest()) != self.sha256:
            raise RuntimeBuildError(
                f"{path} is not the pinned {self.top}.tar.gz: SHA-256 {digest} instead of {self.sha256}",
                cause="a damaged download, or a file that was replaced where it is published",
                hint=f"remove it and build again; {self.manifest} has the pin",
            )
        return data


Download = Callable[[ZstdPin, Path], None]
"""Puts the pinned file into a folder; raises ToolchainError."""


def load_runtime_manifest(folder: Path) -> RuntimeManifest:
    """`folder`/runtime.yaml. Raises ManifestError."""
    return load(folder / "runtime.yaml", RuntimeManifest)


def load_dl_manifest(folder: Path) -> DlManifest:
    """`folder`/dl.yaml. Raises ManifestError."""
    return load(folder / "dl.yaml", DlManifest)


def unpack_zstd(
    pin: ZstdPin,
    *,
    cache: Path,
    folder: Path,
    environment: Mapping[str, str],
    download: Download | None = None,
) -> Path:
    """Unpacks the pinned C sources of zstd into `folder` and returns it. Raises what `PinnedArchive.unpack` raises."""
    archive = PinnedArchive(
        top=pin.file.removesuffix(".tar.gz"),
        sha256=pin.sha256,
        variable=ZSTD_VARIABLE,
        manifest="manifests/runtime.yaml",
        fetch=partial(download or pip_download, pin),
        members=pin.members,
    )
    return archive.unpack(folder, cache=cache, environment=environment)


def dl_source(
    root: Path,
    *,
    cache: Path,
    folder: Path,
    environment: Mapping[str, str],
    manifest: DlManifest | None = None,
) -> DlSource:
    """The sources that the manifest (default: the repository's) selects, a pinned archive unpacked into `folder`.

    Raises ManifestError, and what `PinnedArchive.unpack` raises.
    """
    pin = (manifest or load_dl_manifest(root / "manifests")).dlfcn_win32
    if pin is None:
        return DlSource(name="aotforge dl", original=None)
    archive = PinnedArchive(
        top=f"dlfcn-win32-{pin.version}",
        sha256=pin.sha256,
        variable=DLFCN_VARIABLE,
        manifest="manifests/dl.yaml",
        fetch=partial(_url_download, pin, root),
        members=("src/dlfcn.c", "src/dlfcn.h"),
        optional=("COPYING",),
    )
    original = archive.unpack(folder, cache=cache, environment=environment)
    return DlSource(name=f"dlfcn-win32 {pin.version}", original=original)


_BACKEND = "setuptools==84.2.1"
_BACKEND_SHA256 = "ca140b45d5325a9478f880e351484f62fef15f336462e449ca0c03c873d589c2"
"""The build backend of zstandard's source distribution."""


def pip_download(pin: ZstdPin, folder: Path) -> None:
    """Fetches the source distribution with pip and the caller's index settings.

    pip makes a source distribution's metadata, which executes code of it and of its build backend; both have a hash, which pip compares
    first. Left to itself, pip installs the newest backend of the index. Raises ToolchainError, RuntimeBuildError for other bytes than
    the pinned ones.
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
    hint = f"put the file (SHA-256 {pin.sha256}) into any folder and set {ZSTD_VARIABLE} to its path"
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


def _url_download(pin: DlfcnPin, root: Path, folder: Path) -> None:
    from http.client import HTTPException  # noqa: PLC0415 - 12 ms of a no-op build

    from aotforge.run.rootfs.fetch import receive  # noqa: PLC0415 - as above

    url = pin.source
    if urlsplit(url).scheme not in ("http", "https", "file"):
        url = (root / url).resolve().as_uri()
    try:
        receive(url, folder / f"dlfcn-win32-{pin.version}.tar.gz", limit=_ARCHIVE_LIMIT)
    except (OSError, ValueError, HTTPException) as error:
        raise ToolchainError(
            f"{pin.source} cannot be fetched: {getattr(error, 'reason', None) or error}",
            cause="no network, or a path that does not exist",
            hint=f"put the file (SHA-256 {pin.sha256}) into any folder and set {DLFCN_VARIABLE} to its path, "
            "or remove dlfcn_win32 from manifests/dl.yaml to build aotforge's own dl",
        ) from error
