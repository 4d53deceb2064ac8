"""Writes the entries of checked archives into a folder that no other program uses yet."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from aotforge.formats.untrusted_tar import UnsafeArchiveError


@dataclass(kw_only=True)
class FolderSink:
    """Makes entries below the folder `root`, which exists and is empty.

    Several archives may share a sink as long as none changes what another has made; a file that both have with the same bytes (a
    licence) is written once. `made`: path to SHA-256, or `-> target` of a link. `neighbours`: links lead to their own folder only.
    """

    root: Path
    neighbours: bool = False
    made: dict[str, str] = field(default_factory=dict)
    _folders: set[str] = field(default_factory=set)

    def folder(self, path: PurePosixPath) -> None:
        """Makes a folder and those above it."""
        if str(path) in self._folders or not path.parts:
            return
        if str(path) in self.made:
            raise UnsafeArchiveError(f"{str(path)!r} is not a folder in another archive")
        self.folder(path.parent)
        (self.root / path).mkdir()
        self._folders.add(str(path))

    def file(self, path: PurePosixPath, *, executable: bool, pieces: Iterator[bytes]) -> None:
        """Creates a file; never opens an existing one."""
        self.folder(path.parent)
        digest = hashlib.sha256()
        target = self.root / path
        if str(path) in self.made or str(path) in self._folders:
            for piece in pieces:
                digest.update(piece)
            self._same(path, digest.hexdigest())
            return
        mode = 0o777 if executable else 0o666  # less the umask
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(handle, "wb") as file:
            for piece in pieces:
                digest.update(piece)
                file.write(piece)
        self.made[str(path)] = digest.hexdigest()

    def link(self, path: PurePosixPath, target: str) -> None:
        """Creates a symbolic link."""
        if self.neighbours and "/" in target:
            raise UnsafeArchiveError(f"the link {str(path)!r} leads to another folder, {target!r}")
        self.folder(path.parent)
        if str(path) in self.made or str(path) in self._folders:
            self._same(path, f"-> {target}")
            return
        (self.root / path).symlink_to(target)
        self.made[str(path)] = f"-> {target}"

    def _same(self, path: PurePosixPath, content: str) -> None:
        if self.made.get(str(path)) != content:
            raise UnsafeArchiveError(f"{str(path)!r} has other contents in another archive")
