"""Unpacks untrusted archives into a staged folder and compares them with the index."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from aotforge.errors import TrustError
from aotforge.formats.untrusted_tar import TarFacts, UnsafeArchiveError, read_archive
from aotforge.publish.index import IndexedFile


@dataclass(kw_only=True)
class FolderSink:
    """Creates entries below `root`. Several archives may share a folder as long as their files do not conflict.

    `made`: path to SHA-256, or `-> target` of a link. A file of the same bytes in two archives (a licence) is one.
    """

    root: Path
    made: dict[str, str] = field(default_factory=dict)
    _folders: set[PurePosixPath] = field(default_factory=set)

    def folder(self, path: PurePosixPath) -> None:
        """mkdir, with the folders above."""
        if path in self._folders or path == PurePosixPath():
            return
        if str(path) in self.made:
            raise UnsafeArchiveError(f"{str(path)!r} is not a folder in another archive")
        self.folder(path.parent)
        (self.root / path).mkdir(mode=0o755)
        self._folders.add(path)

    def file(self, path: PurePosixPath, *, executable: bool, pieces: Iterator[bytes]) -> None:
        """Creates a file, never opens an existing one."""
        self.folder(path.parent)
        digest = hashlib.sha256()
        target = self.root / path
        if str(path) in self.made or path in self._folders:
            for piece in pieces:
                digest.update(piece)
            self._same(path, digest.hexdigest())
            return
        handle = os.open(
            target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o755 if executable else 0o644
        )
        with os.fdopen(handle, "wb", buffering=0) as file:
            for piece in pieces:
                digest.update(piece)
                view = memoryview(piece)
                while view:
                    view = view[file.write(view) :]
            os.fchmod(file.fileno(), 0o755 if executable else 0o644)
        self.made[str(path)] = digest.hexdigest()

    def link(self, path: PurePosixPath, target: str) -> None:
        """Creates a symbolic link."""
        self.folder(path.parent)
        if str(path) in self.made or path in self._folders:
            self._same(path, f"-> {target}")
            return
        (self.root / path).symlink_to(target)
        self.made[str(path)] = f"-> {target}"

    def _same(self, path: PurePosixPath, what: str) -> None:
        if self.made.get(str(path)) != what:
            raise UnsafeArchiveError(f"{str(path)!r} is something else in another archive")


def unpack(
    file: IndexedFile,
    where: str,
    chunks: Iterable[bytes],
    sink: FolderSink,
    *,
    on_bytes: Callable[[int], None] | None = None,
) -> None:
    """Unpacks an archive and compares size and SHA-256 of it and of the tar inside with the index.

    `where` names it in messages. Raises TrustError; the caller then discards what the sink has made.
    """
    if file.tar is None:
        raise TrustError(
            f"the index does not describe the contents of {file.name}", hint="report this to the publisher"
        )
    try:
        facts = read_archive(_bounded(chunks, file.size), sink, bounds=file.tar, on_bytes=on_bytes)
    except UnsafeArchiveError as error:
        raise _refused(where, str(error)) from None
    if (facts.size, facts.sha256) != (file.size, file.sha256):
        raise _refused(where, "it does not match the index")
    if facts.tar != TarFacts(sha256=file.tar.sha256, size=file.tar.size, members=file.tar.members):
        raise _refused(where, "its contents do not match the index")


def _bounded(chunks: Iterable[bytes], limit: int) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise UnsafeArchiveError(f"it is longer than the {limit} bytes in the index")
        yield chunk


def _refused(where: str, why: str) -> TrustError:
    return TrustError(
        f"{where} is refused: {why}",
        cause="it was changed or cut off there or on the way",
        hint="nothing was installed; use another mirror, and report this to the publisher",
    )
