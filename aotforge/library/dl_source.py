"""Sources of dl: `runtime/dl`, or dlfcn-win32's own, pinned by the user in `manifests/dl.yaml`."""

from __future__ import annotations

import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from aotforge.base.manifest_reader import Manifest, load
from aotforge.errors import ToolchainError
from aotforge.library.pinned_source import PinnedArchive, pinned_archive, unpack_flat

SOURCE_VARIABLE = "AOTFORGE_DLFCN_SOURCE"
"""Environment variable: path of the pinned archive, for machines without a network."""

_MANIFEST = "manifests/dl.yaml"
_MEMBERS = ("src/dlfcn.c", "src/dlfcn.h")
_LICENCE = ("COPYING",)
_DOWNLOAD_SECONDS = 60


class DlfcnPin(Manifest):
    """A source archive of dlfcn-win32. `source`: URL, or path (a relative one starts at the repository's root)."""

    version: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$")]
    source: Annotated[str, Field(min_length=1)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class DlManifest(Manifest):
    """Pin of dlfcn-win32; without it, dl is built from `runtime/dl`."""

    schema_version: Literal[1] = Field(alias="schema")
    dlfcn_win32: DlfcnPin | None = None


@dataclass(frozen=True, kw_only=True)
class DlSource:
    """`original`: folder with dlfcn.c and dlfcn.h that replace runtime/dl, or None. `name`: for people."""

    name: str
    original: Path | None

    @property
    def settings(self) -> dict[str, str]:
        """CMake variables of runtime/dl/CMakeLists.txt."""
        return {"AOTFORGE_DL_ORIGINAL": "" if self.original is None else str(self.original)}


def load_dl_manifest(folder: Path) -> DlManifest:
    """`folder`/dl.yaml. Raises ManifestError."""
    return load(folder / "dl.yaml", DlManifest)


def dl_source(
    root: Path,
    *,
    cache: Path,
    folder: Path,
    environment: Mapping[str, str],
    manifest: DlManifest | None = None,
) -> DlSource:
    """The sources that the manifest (default: the repository's) selects, a pinned archive unpacked into `folder`.

    Raises ManifestError, ToolchainError when the archive cannot be fetched, RuntimeBuildError when it is not the pinned one.
    """
    pin = (manifest or load_dl_manifest(root / "manifests")).dlfcn_win32
    if pin is None:
        return DlSource(name="aotforge dl", original=None)
    top = f"dlfcn-win32-{pin.version}"
    pinned = PinnedArchive(
        file=f"{top}.tar.gz", sha256=pin.sha256, variable=SOURCE_VARIABLE, manifest=_MANIFEST
    )
    archive = pinned_archive(
        pinned, cache=cache, environment=environment, fetch=partial(_fetch, pin, pinned, root)
    )
    unpack_flat(archive, folder, top=top, members=_MEMBERS, optional=_LICENCE)
    return DlSource(name=f"dlfcn-win32 {pin.version}", original=folder)


def _fetch(pin: DlfcnPin, pinned: PinnedArchive, root: Path, folder: Path) -> None:
    url = pin.source
    if urllib.parse.urlsplit(url).scheme not in ("http", "https", "file"):
        url = (root / url).resolve().as_uri()
    try:
        with (
            urllib.request.urlopen(url, timeout=_DOWNLOAD_SECONDS) as response,
            (folder / pinned.file).open("wb") as file,
        ):
            shutil.copyfileobj(response, file)
    except (OSError, ValueError, urllib.error.URLError) as error:
        reason = getattr(error, "reason", None) or error
        raise ToolchainError(
            f"{pin.source} cannot be fetched: {reason}",
            cause="no network, or a path that does not exist",
            hint=f"put the file (SHA-256 {pin.sha256}) into any folder and set {SOURCE_VARIABLE} to its path, "
            f"or remove dlfcn_win32 from {_MANIFEST} to build aotforge's own dl",
        ) from error
