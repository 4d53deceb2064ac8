"""Assembles the packages and wheels of a lock into a rootfs tar, without privileges or network.

Packages are unpacked and never configured: no maintainer script runs, so the result depends on the lock
alone. The definition has what the scripts would create (links of alternatives, /bin/sh). /usr is merged.
"""

import fnmatch
import posixpath
import re
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from aotforge.errors import ContainerError
from aotforge.formats.archive import write_tar
from aotforge.formats.wheel import wheel_members
from aotforge.run.rootfs.definitions import Definition, Lock

_MERGED = ("bin", "sbin", "lib", "lib64", "lib32", "libx32")
_FOLDERS = ("dev", "etc", "home", "proc", "root", "run", "sys", "usr", "var", "work")
_STICKY = ("tmp", "var/tmp")
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    # empty, so that engines can mount over them
    "etc/hostname": "",
    "etc/resolv.conf": "",
}


class _Tree:
    """Members by path. Contents are spooled to a file: half a gigabyte does not fit every memory."""

    def __init__(self, spool: BinaryIO, definition: Definition) -> None:
        self._spool, self._members = spool, dict[str, tarfile.TarInfo]()
        self._excluded, self._kept = _pattern(definition.exclude), _pattern(definition.keep)
        for name in _MERGED[:4]:
            self.link(name, f"usr/{name}")
        for name in (*_FOLDERS, *_STICKY, *(f"usr/{name}" for name in _MERGED[:4])):
            self._members[name] = _folder(0o1777 if name in _STICKY else 0o755)

    def link(self, path: str, target: str) -> None:
        """Adds a symbolic link, which replaces what is there."""
        info = tarfile.TarInfo()
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
        self._members[path] = info

    def file(self, path: str, mode: int, content: BinaryIO) -> None:
        """Adds a file, readable for every user, unless the definition excludes it."""
        if self._excluded.match(path) and not self._kept.match(path):
            return
        info = tarfile.TarInfo()
        info.mode = 0o755 if mode & stat.S_IXUSR else 0o644
        info.offset_data = self._spool.seek(0, 2)
        while piece := content.read(1 << 20):
            info.size += self._spool.write(piece)
        self._members[path] = info

    def package(self, path: Path, take: Mapping[str, str]) -> None:
        """Adds the members of a .deb below the prefixes in `take`, with these replaced."""
        with _package_data(path) as archive:
            for member in archive:
                name = _merged(member.name)
                for before, after in take.items():
                    if name and (not before or name == before or name.startswith(f"{before}/")):
                        self._add(after + name[len(before) :], member, archive)

    def _add(self, path: str, member: tarfile.TarInfo, archive: tarfile.TarFile) -> None:
        present = self._members.get(path)
        if member.isreg():
            self.file(path, member.mode, archive.extractfile(member))  # type: ignore[arg-type]
        elif self._excluded.match(path) and not self._kept.match(path):
            return
        elif member.isdir():
            if present is None or not present.isdir():
                self._members[path] = _folder(0o755)
        elif member.issym():
            # /usr/bin/touch -> /bin/touch is the file itself where /usr is merged
            target = posixpath.join("/", posixpath.dirname(path), member.linkname)
            if _merged(target) != path and (present is None or present.issym()):
                self.link(path, member.linkname)
        elif member.islnk() and (first := self._members.get(_merged(member.linkname))) is not None:
            self._members[path] = first  # the same content again
        else:
            raise ContainerError(f"/{path} of a package is neither file, folder nor link")

    def entries(self, epoch: int) -> Iterator[tuple[tarfile.TarInfo, BinaryIO | None]]:
        """All members by path, parents included, with one time and one owner."""
        for path in list(self._members):
            while path := posixpath.dirname(path):
                self._members.setdefault(path, _folder(0o755))
        for path in sorted(self._members, key=str.encode):
            info = copy(self._members[path])  # TarInfo.replace came with 3.11.4
            info.name, info.mtime = path, epoch
            self._spool.seek(info.offset_data)
            yield info, self._spool if info.isreg() else None


def assemble(definition: Definition, lock: Lock, *, files: Callable[[str], Path], tar: Path) -> str:
    """Writes the rootfs of `lock`, whose `files` are verified, to `tar`; returns its SHA-256."""
    with tempfile.TemporaryFile(dir=tar.parent) as spool, tar.open("wb") as out:
        tree = _Tree(spool, definition)
        for package in lock.packages:
            tree.package(files(package.sha256), {"": ""})
        for part, package in zip(definition.parts, lock.parts, strict=True):
            tree.package(files(package.sha256), part.take)
        for wheel in lock.wheels:
            assert definition.wheels is not None
            for name, mode, content in wheel_members(files(wheel.sha256)):
                tree.file(f"{definition.wheels.folder}/{name}", mode, content)
        for name, text in _FILES.items():
            tree.file(name, 0o644, BytesIO(text.encode()))
        for name, target in definition.links.items():
            tree.link(name, target)
        return write_tar(out, tree.entries(definition.epoch), layout=tarfile.GNU_FORMAT)


def _folder(mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo()
    info.type, info.mode = tarfile.DIRTYPE, mode
    return info


def _pattern(globs: Iterable[str]) -> re.Pattern[str]:
    """One expression for all globs and everything below them. `*` also matches slashes."""
    words = (fnmatch.translate(f"{glob}{tail}") for glob in globs for tail in ("", "/*"))
    return re.compile("|".join(words) or r"(?!)")


def _merged(name: str) -> str:
    """A package's path in a rootfs with a merged /usr; empty for the top folder and the merged ones."""
    path = posixpath.normpath(name).lstrip("/")
    first, _, rest = path.partition("/")
    if first == "..":
        raise ContainerError(f"a package has a member outside the rootfs: {name}")
    if first in _MERGED:
        return f"usr/{path}" if rest else ""
    return "" if path == "." else path


@contextmanager
def _package_data(path: Path) -> Iterator[tarfile.TarFile]:
    """`data.tar.*` of a Debian package: an `ar` archive (deb(5)). Raises ContainerError."""
    try:
        with path.open("rb") as file:
            file.seek(8)
            while len(header := file.read(60)) == 60 and not header.startswith(b"data.tar"):
                size = int(header[48:58])
                file.seek(size + size % 2, 1)
            with tarfile.open(fileobj=BytesIO(file.read(int(header[48:58] or b"0")))) as archive:
                yield archive
    except (tarfile.TarError, ValueError, EOFError) as error:
        raise ContainerError(
            f"{path} is not a valid Debian package: {error}",
            hint="remove the file and build again: it is fetched anew",
        ) from error
