"""Source archives that a manifest pins by SHA-256: from the cache, a named file, or where they are published."""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.files import output_errors, write_atomic
from aotforge.errors import RuntimeBuildError, ToolchainError

_MEMBER_LIMIT = 16 * 2**20


@dataclass(frozen=True, kw_only=True)
class PinnedArchive:
    """A file by name and content. `variable`: environment variable that may name a copy; `manifest`: file with the pin."""

    file: str
    sha256: str
    variable: str
    manifest: str


Fetch = Callable[[Path], None]
"""Puts the pinned file into a folder; raises ToolchainError."""


def pinned_archive(pin: PinnedArchive, *, cache: Path, environment: Mapping[str, str], fetch: Fetch) -> Path:
    """The archive as `cache`/sources/<sha256>/<file>; a damaged one there is fetched again.

    Raises ToolchainError when it cannot be fetched, RuntimeBuildError when a named or fetched file is not the pinned one.
    """
    kept = cache / "sources" / pin.sha256 / pin.file
    with suppress(ToolchainError, RuntimeBuildError):
        _pinned_bytes(kept, pin)
        return kept
    if named := environment.get(pin.variable):
        write_atomic(kept, _pinned_bytes(Path(named), pin))
        return kept
    with tempfile.TemporaryDirectory(prefix="aotforge-sources-") as folder:
        fetch(Path(folder))
        write_atomic(kept, _pinned_bytes(Path(folder) / pin.file, pin))
    return kept


def unpack_flat(
    archive: Path, folder: Path, *, top: str, members: tuple[str, ...], optional: tuple[str, ...] = ()
) -> Path:
    """Unpacks `top`/<member> of a tar archive into `folder`, without the members' own folders, and returns it.

    `optional` members may be missing. Raises RuntimeBuildError for an archive without one of the others, OutputError.
    """
    with output_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(archive) as tar:
            names = set(tar.getnames())
            for member in members + tuple(name for name in optional if f"{top}/{name}" in names):
                info = tar.getmember(f"{top}/{member}")
                content = tar.extractfile(info)
                if content is None or info.size > _MEMBER_LIMIT:
                    raise RuntimeBuildError(f"{archive}: {member} is not a regular file of at most 16 MiB")
                data, target = content.read(), folder / Path(member).name
                with output_errors(target):  # a full disk does not make the archive invalid
                    target.write_bytes(data)
    except KeyError as error:
        raise RuntimeBuildError(
            f"{archive} has no {error.args[0] if error.args else 'such member'}",
            cause="the pin selects another archive than the manifest describes",
            hint="pin the release's own source archive",
        ) from error
    except (tarfile.TarError, EOFError, OSError) as error:
        raise RuntimeBuildError(f"{archive} cannot be unpacked: {error}") from error
    return folder


def _pinned_bytes(path: Path, pin: PinnedArchive) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ToolchainError(
            f"{path} cannot be read: {error.strerror}", hint=f"set {pin.variable} to a copy of {pin.file}"
        ) from error
    if (digest := hashlib.sha256(data).hexdigest()) != pin.sha256:
        raise RuntimeBuildError(
            f"{path} is not the pinned {pin.file}: SHA-256 {digest} instead of {pin.sha256}",
            cause="a damaged download, or a file that was replaced where it is published",
            hint=f"remove it and build again; {pin.manifest} has the pin",
        )
    return data
