"""The C sources of zstd: from the cache, a file that the caller names, or the package index; always the pinned bytes."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from aotforge.errors import RuntimeBuildError, ToolchainError
from aotforge.library.library_manifest import ZstdPin
from aotforge.library.pinned_source import PinnedArchive, pinned_archive, unpack_flat

SOURCE_VARIABLE = "AOTFORGE_ZSTD_SOURCE"
"""Environment variable: path of the source distribution, for machines without a package index."""

_DOWNLOAD_SECONDS = 600
_OTHER_BYTES = "DO NOT MATCH THE HASHES"
"""Of pip's message (pip._internal.exceptions.HashMismatch)."""

Download = Callable[[ZstdPin, Path], None]
"""Puts the pinned file into a folder; raises ToolchainError."""


def unpack_zstd(
    pin: ZstdPin,
    *,
    cache: Path,
    folder: Path,
    environment: Mapping[str, str],
    download: Download | None = None,
) -> Path:
    """Puts the pinned members flat into `folder` and returns it.

    Raises ToolchainError when the archive is nowhere to be had, RuntimeBuildError when a file that was named or fetched is
    not the pinned one.
    """
    pinned = PinnedArchive(
        file=pin.file, sha256=pin.sha256, variable=SOURCE_VARIABLE, manifest="manifests/runtime.yaml"
    )
    fetch = functools.partial(download or pip_download, pin)
    archive = pinned_archive(pinned, cache=cache, environment=environment, fetch=fetch)
    return unpack_flat(archive, folder, top=pin.file.removesuffix(".tar.gz"), members=pin.members)


def pip_download(pin: ZstdPin, folder: Path) -> None:
    """Fetch the source distribution with pip and the caller's index settings.

    pip asks a source distribution for its metadata, which runs code of it; the hash makes it compare the bytes first. Raises
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
        output = done.stderr or done.stdout
        failed = done.returncode != 0
    except (OSError, subprocess.TimeoutExpired) as error:
        output, failed = str(error), True
    if failed and _OTHER_BYTES in output:
        raise RuntimeBuildError(
            f"the index has another {pin.file} than the pinned one (SHA-256 {pin.sha256})",
            cause="a file that was replaced on the index, or a mirror that cannot be trusted",
            hint=f"put the pinned file anywhere and set {SOURCE_VARIABLE} to its path",
        )
    if failed:
        lines = output.strip().splitlines()
        raise ToolchainError(
            f"{pin.file} cannot be fetched: {lines[-1] if lines else 'pip failed'}",
            cause="no package index in reach",
            hint=f"put the file (SHA-256 {pin.sha256}) anywhere and set {SOURCE_VARIABLE} to its path",
        )
