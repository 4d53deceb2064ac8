"""The C sources of zstd: from the cache, a file that the caller names, or the package index; always the pinned bytes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from aotforge.errors import RuntimeBuildError, ToolchainError
from aotforge.files import write_atomic
from aotforge.runtime.manifest import ZstdPin

SOURCE_VARIABLE = "AOTFORGE_ZSTD_SOURCE"
"""Environment variable: path of the source distribution, for machines without a package index."""

_MEMBER_LIMIT = 16 * 2**20
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

    The archive is kept as `cache`/sources/<sha256>/<file>; a damaged one is fetched again. Raises ToolchainError when it is
    nowhere to be had, RuntimeBuildError when a file that was named or fetched is not the pinned one.
    """
    archive = _archive(pin, cache=cache, environment=environment, download=download or pip_download)
    folder.mkdir(parents=True, exist_ok=True)
    top = pin.file.removesuffix(".tar.gz")
    with tarfile.open(archive) as tar:
        for member in pin.members:
            info = tar.getmember(f"{top}/{member}")
            content = tar.extractfile(info)
            if content is None or info.size > _MEMBER_LIMIT:
                raise RuntimeBuildError(f"{archive}: {member} is not a file of ordinary size")
            (folder / Path(member).name).write_bytes(content.read())
    return folder


def _archive(pin: ZstdPin, *, cache: Path, environment: Mapping[str, str], download: Download) -> Path:
    kept = cache / "sources" / pin.sha256 / pin.file
    if _is_pinned(kept, pin):
        return kept
    named = environment.get(SOURCE_VARIABLE)
    if named:
        _require_pinned(Path(named), pin)
        write_atomic(kept, Path(named).read_bytes())
        return kept
    with tempfile.TemporaryDirectory(prefix="aotforge-zstd-") as folder:
        download(pin, Path(folder))
        fetched = Path(folder) / pin.file
        _require_pinned(fetched, pin)
        write_atomic(kept, fetched.read_bytes())
    return kept


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


def _is_pinned(path: Path, pin: ZstdPin) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == pin.sha256
    except OSError:
        return False


def _require_pinned(path: Path, pin: ZstdPin) -> None:
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ToolchainError(
            f"{path} cannot be read: {error.strerror}", hint=f"set {SOURCE_VARIABLE} to a copy of {pin.file}"
        ) from error
    if digest != pin.sha256:
        raise RuntimeBuildError(
            f"{path} is not the pinned {pin.file}: SHA-256 {digest} instead of {pin.sha256}",
            cause="a damaged download, or a file that was replaced on the index",
            hint="remove it and build again; manifests/runtime.yaml holds the pin",
        )
