"""Assembles the files of a lock into a rootfs tar, without privileges, chroot or network.

Packages are unpacked and never configured: no maintainer script runs, so the result does not depend on this machine, its clock or its
kernel. The definition contains what the scripts would create (links of alternatives, users, /bin/sh). Paths are those of a merged
/usr, as Debian installs them.
"""

import fnmatch
import functools
import posixpath
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from aotforge.errors import ContainerError
from aotforge.formats.archive import write_tar
from aotforge.formats.deb import control, data_members
from aotforge.formats.wheel import wheel_members
from aotforge.sandbox.rootfs.definitions import Definition, Lock, LockedPackage
from aotforge.sandbox.rootfs.members import Member, Spool, file_mode, member_list, tar_entries

_MERGED = ("bin", "sbin", "lib", "lib64", "lib32", "libx32")
_FOLDERS = ("dev", "etc", "home", "proc", "root", "run", "sys", "tmp", "usr", "var", "var/tmp")
_STICKY = {"tmp", "var/tmp"}
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    # empty, so that engines can mount over them on a read-only rootfs
    "etc/hostname": "",
    "etc/machine-id": "",
    "etc/resolv.conf": "",
}


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """A written tar: SHA-256 and size in bytes, and its member list."""

    digest: str
    size: int
    members: str


@dataclass(kw_only=True)
class _Tree:
    spool: Spool
    ignored: re.Pattern[str]
    kept: re.Pattern[str]
    members: dict[str, Member] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)

    def includes(self, path: str) -> bool:
        """The definition does not exclude the path."""
        return bool(path) and (not self.ignored.match(path) or bool(self.kept.match(path)))

    def add(self, path: str, member: Member, owner: str) -> None:
        """Adds one member of a package; folders merge, other members must not exist with other contents."""
        target = posixpath.join("/", posixpath.dirname(path), member.target)
        if member.kind == "link" and merged(target) == path:
            return  # /usr/bin/touch -> /bin/touch is the file itself where /usr is merged
        present = self.members.get(path)
        if present is not None and present.kind == member.kind == "folder":
            return
        # a package may have the file and, from before /usr was merged, a link to it: the file is taken
        same = present is not None and replace(present, offset=member.offset) == member
        if present is not None and not same and not _is_alias(path, present):
            if _is_alias(path, member):
                return
            raise ContainerError(
                f"/{path} is in {self.owners.get(path, 'every rootfs')} and in {owner}, with different contents",
                hint="remove one of the packages or exclude the path in the definition, then: ./dev containers.lock",
            )
        self.members[path] = member
        self.owners[path] = owner

    def add_package(self, path: Path, name: str, take: Mapping[str, str]) -> int:
        """Adds the data of a .deb below the prefixes in `take`, with these replaced; returns the number of members."""
        taken = 0
        for info, content in data_members(path):
            inside = merged(info.name)
            for before, after in take.items():
                target = after + inside[len(before) :]
                below = not before or inside == before or inside.startswith(f"{before}/")
                if below and self.includes(target):
                    self.add(target, self._member(info, content, path), name)
                    taken += 1
        return taken

    def _member(self, info: tarfile.TarInfo, content: BinaryIO | None, path: Path) -> Member:
        if content is not None:
            return self.spool.add(content, info.mode)
        if info.isdir():
            return Member(kind="folder", mode=0o755)
        if info.issym():
            return Member(kind="link", mode=0o777, target=info.linkname)
        if info.islnk():
            return Member(kind="hard", mode=file_mode(info.mode), target=merged(info.linkname))
        raise ContainerError(f"{path}: {info.name} is neither file, folder nor link")


def assemble(
    definition: Definition,
    lock: Lock,
    *,
    files: Callable[[str], Path],
    tar: Path,
    on_file: Callable[[int, int], None],
) -> Assembled:
    """Writes the rootfs of `lock` to `tar`. `files` maps a SHA-256 to a stored file. Raises ContainerError, OSError."""
    files = functools.cache(files)  # a file is verified once, however often it is opened
    numbers = iter(range(1, len(lock.files) + 1))
    with tempfile.TemporaryFile(dir=tar.parent) as spooled, tar.open("wb") as out:
        spool = Spool(spooled)
        tree = _Tree(spool=spool, ignored=_globs(definition.exclude), kept=_globs(definition.keep))
        _add_base(tree, definition)
        for package in lock.packages:
            tree.add_package(files(package.sha256), package.name, {"": ""})
            on_file(next(numbers), len(lock.files))
        for part, package in zip(definition.parts, lock.parts, strict=True):
            if not tree.add_package(files(package.sha256), part.package, part.take):
                below = ", ".join(part.take)
                raise ContainerError(f"{part.package} has no files below {below}", hint="correct `take`")
            on_file(next(numbers), len(lock.files))
        for wheel in lock.wheels:
            assert definition.wheels is not None
            for name, mode, content in wheel_members(files(wheel.sha256)):
                if tree.includes(path := f"{definition.wheels.folder}/{name}"):
                    tree.add(path, spool.add(content, mode), wheel.name)
            on_file(next(numbers), len(lock.files))
        _add_final(tree, definition, _status(lock.packages, files))
        members = with_hard_links(with_parents(tree.members))
        entries = tar_entries(members, spool, epoch=definition.epoch)
        digest, size = write_tar(out, entries, layout=tarfile.GNU_FORMAT)
    return Assembled(digest=digest, size=size, members=member_list(members))


def _globs(patterns: Iterable[str]) -> re.Pattern[str]:
    """One expression for all patterns and everything below them. `*` also matches slashes."""
    return re.compile(
        "|".join(fnmatch.translate(f"{p}{tail}") for p in patterns for tail in ("", "/*")) or r"(?!)"
    )


def _add_base(tree: _Tree, definition: Definition) -> None:
    for name in _MERGED[:4]:
        tree.members[name] = Member(kind="link", mode=0o777, target=f"usr/{name}")
        tree.members[f"usr/{name}"] = Member(kind="folder", mode=0o755)
    for name in (*_FOLDERS, *definition.folders):
        tree.members[name] = Member(kind="folder", mode=0o1777 if name in _STICKY else 0o755)


def _add_final(tree: _Tree, definition: Definition, status: str) -> None:
    """Adds what belongs to no package; the definition's links come last, since they may replace a package's members."""
    for name, text in {**_FILES, "var/lib/dpkg/status": status}.items():
        tree.members[name] = tree.spool.add(BytesIO(text.encode()), 0o644)
    for name, target in definition.links.items():
        tree.members[name] = Member(kind="link", mode=0o777, target=target)


def merged(name: str) -> str:
    """A package's path as a path in a rootfs with a merged /usr; empty for the top folder. Raises ContainerError."""
    path = posixpath.normpath(name).lstrip("/")
    if path == ".":
        return ""
    first, _, rest = path.partition("/")
    if first == "..":
        raise ContainerError(f"a package has a member outside the rootfs: {name}")
    return f"usr/{path}" if first in _MERGED and rest else ("" if first in _MERGED else path)


def _is_alias(path: str, member: Member) -> bool:
    return member.kind == "link" and posixpath.basename(member.target) == posixpath.basename(path)


def _status(packages: Iterable[LockedPackage], files: Callable[[str], Path]) -> str:
    """dpkg's database, for `dpkg-query` and scanners."""
    paragraphs = []
    for package in sorted(packages, key=lambda entry: entry.name):
        first, _, rest = control(files(package.sha256)).strip().partition("\n")
        paragraphs.append(f"{first}\nStatus: install ok installed\n{rest}\n")
    return "\n".join(paragraphs)


def with_parents(members: dict[str, Member]) -> dict[str, Member]:
    """Adds missing parent folders. Raises ContainerError for a member below a file."""
    complete = dict(members)
    for path in members:
        parent = posixpath.dirname(path)
        while parent:
            present = complete.setdefault(parent, Member(kind="folder", mode=0o755))
            if present.kind != "folder":
                raise ContainerError(f"/{path} is below /{parent}, which is not a folder")
            parent = posixpath.dirname(parent)
    return complete


def with_hard_links(members: dict[str, Member]) -> dict[str, Member]:
    """Gives the content of a file to its first name in the tar's order; the other names are links to it."""
    groups: dict[str, list[str]] = {}
    for path, member in members.items():
        if member.kind == "hard":
            groups.setdefault(member.target, []).append(path)
    complete = dict(members)
    for target, names in groups.items():
        content = members.get(target)
        if content is None or content.kind != "file":
            raise ContainerError(
                f"/{names[0]} is a hard link to /{target}, which is excluded",
                hint="exclude it too, or keep both",
            )
        first, *others = sorted({target, *names}, key=lambda name: name.encode())
        complete[first] = content
        for name in others:
            complete[name] = Member(kind="hard", mode=content.mode, target=first)
    return complete
