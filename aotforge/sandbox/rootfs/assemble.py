"""A lock's files become one root filesystem tar, without privileges, chroot or network.

Packages are unpacked here and never configured: no maintainer script runs, so nothing of this machine, its clock or its kernel can
reach the result. What scripts would do and a root needs (links of alternatives, users, /bin/sh) its definition says. Paths are those of
a merged /usr, as Debian installs them.
"""

from __future__ import annotations

import fnmatch
import functools
import posixpath
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from aotforge.errors import ContainerError
from aotforge.formats.deb import control, data_members
from aotforge.formats.wheel import wheel_members
from aotforge.sandbox.rootfs.definitions import Definition, Lock, LockedPackage, Part
from aotforge.sandbox.rootfs.members import Member, Spool, file_mode, member_list, write_tar

_MERGED = ("bin", "sbin", "lib", "lib64", "lib32", "libx32")
_FOLDERS = ("dev", "etc", "home", "proc", "root", "run", "sys", "tmp", "usr", "var", "var/tmp")
_STICKY = {"tmp", "var/tmp"}
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    # empty, so that engines find something to mount over on a read-only root
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

    def wants(self, path: str) -> bool:
        """Whether the definition leaves the path in."""
        return bool(path) and (not self.ignored.match(path) or bool(self.kept.match(path)))

    def add(self, path: str, member: Member, owner: str) -> None:
        """One member of a package; folders merge, anything else must not be there in another form."""
        if member.kind == "link" and _resolve(path, member.target) == path:
            return  # /usr/bin/touch -> /bin/touch is the file itself where /usr is merged
        there = self.members.get(path)
        if there is not None and there.kind == member.kind == "folder":
            return
        if there is not None and not _same(there, member):
            if _alias(path, there):
                pass  # the file, where a package also has a link from its place before /usr was merged
            elif _alias(path, member):
                return
            else:
                raise ContainerError(
                    f"/{path} is in {self.owners.get(path, 'every root')} and in {owner}, and differs",
                    hint="leave one of the packages or the path out in the definition, then: invoke containers.lock",
                )
        self.members[path] = member
        self.owners[path] = owner


def assemble(
    definition: Definition,
    lock: Lock,
    *,
    files: Callable[[str], Path],
    tar: Path,
    on_file: Callable[[int, int], None],
) -> Assembled:
    """Write the root of `lock` to `tar`. `files` gives the path of a stored file by its SHA-256. Raises ContainerError, OSError."""
    files = functools.cache(files)  # a file is checked once, however often it is opened
    total = len(lock.packages) + len(lock.parts) + len(lock.wheels)
    with tempfile.TemporaryFile(dir=tar.parent) as spooled, tar.open("wb") as out:
        spool = Spool(spooled)
        tree = _Tree(spool=spool, ignored=_globs(definition.exclude), kept=_globs(definition.keep))
        _base(tree, definition)
        done = 0
        for package in lock.packages:
            _unpack(tree, files(package.sha256), package.name)
            on_file(done := done + 1, total)
        for part, package in zip(definition.parts, lock.parts, strict=True):
            _unpack_part(tree, files(package.sha256), part)
            on_file(done := done + 1, total)
        for wheel in lock.wheels:
            assert definition.wheels is not None
            for name, mode, content in wheel_members(files(wheel.sha256)):
                if tree.wants(path := f"{definition.wheels.folder}/{name}"):
                    tree.add(path, spool.add(content, mode), wheel.name)
            on_file(done := done + 1, total)
        _finish(tree, definition, _status(lock.packages, files))
        members = with_hard_links(with_parents(tree.members))
        digest, size = write_tar(members, spool, out, epoch=definition.epoch)
    return Assembled(digest=digest, size=size, members=member_list(members))


def _globs(patterns: Iterable[str]) -> re.Pattern[str]:
    """One expression for all: a pattern also covers what lies below. `*` stops at no slash."""
    return re.compile(
        "|".join(fnmatch.translate(f"{p}{tail}") for p in patterns for tail in ("", "/*")) or r"(?!)"
    )


def _base(tree: _Tree, definition: Definition) -> None:
    for name in _MERGED[:4]:
        tree.members[name] = Member(kind="link", mode=0o777, target=f"usr/{name}")
        tree.members[f"usr/{name}"] = Member(kind="folder", mode=0o755)
    for name in (*_FOLDERS, *definition.folders):
        tree.members[name] = Member(kind="folder", mode=0o1777 if name in _STICKY else 0o755)


def _finish(tree: _Tree, definition: Definition, status: str) -> None:
    """What belongs to no package; the definition's links last, since they may take a package's rootfs."""
    for name, text in {**_FILES, "var/lib/dpkg/status": status}.items():
        tree.members[name] = tree.spool.add(BytesIO(text.encode()), 0o644)
    for name, target in definition.links.items():
        tree.members[name] = Member(kind="link", mode=0o777, target=target)


def _unpack(tree: _Tree, path: Path, owner: str) -> None:
    for info, content in data_members(path):
        name = merged(info.name)
        if tree.wants(name):
            tree.add(name, _member(tree.spool, info, content, path), owner)


def _unpack_part(tree: _Tree, path: Path, part: Part) -> None:
    taken = 0
    for info, content in data_members(path):
        name = merged(info.name)
        for before, after in part.take.items():
            rootfs = after + name[len(before) :]
            if (name == before or name.startswith(f"{before}/")) and tree.wants(rootfs):
                tree.add(rootfs, _member(tree.spool, info, content, path), part.package)
                taken += 1
    if not taken:
        raise ContainerError(
            f"{part.package} has nothing below {', '.join(part.take)}", hint="correct `take`"
        )


def _member(spool: Spool, info: tarfile.TarInfo, content: BinaryIO | None, path: Path) -> Member:
    if content is not None:
        return spool.add(content, info.mode)
    if info.isdir():
        return Member(kind="folder", mode=0o755)
    if info.issym():
        return Member(kind="link", mode=0o777, target=info.linkname)
    if info.islnk():
        return Member(kind="hard", mode=file_mode(info.mode), target=merged(info.linkname))
    raise ContainerError(f"{path}: {info.name} is neither file, folder nor link")


def merged(name: str) -> str:
    """A package's path as a path inside a root with a merged /usr; empty for the root itself. Raises ContainerError."""
    path = posixpath.normpath(name).lstrip("/")
    if path == ".":
        return ""
    first, _, rest = path.partition("/")
    if first == "..":
        raise ContainerError(f"a package has a member outside the root: {name}")
    return f"usr/{path}" if first in _MERGED and rest else ("" if first in _MERGED else path)


def _resolve(path: str, target: str) -> str:
    return merged(posixpath.join("/", posixpath.dirname(path), target))


def _alias(path: str, member: Member) -> bool:
    return member.kind == "link" and posixpath.basename(member.target) == posixpath.basename(path)


def _same(one: Member, other: Member) -> bool:
    return replace(one, offset=0) == replace(other, offset=0)


def _status(packages: Iterable[LockedPackage], files: Callable[[str], Path]) -> str:
    """dpkg's database, so that `dpkg-query` and scanners see what is inside."""
    paragraphs = []
    for package in sorted(packages, key=lambda entry: entry.name):
        first, _, rest = control(files(package.sha256)).strip().partition("\n")
        paragraphs.append(f"{first}\nStatus: install ok installed\n{rest}\n")
    return "\n".join(paragraphs)


def with_parents(members: dict[str, Member]) -> dict[str, Member]:
    """Every folder on the way exists, and nothing lies below a file. Raises ContainerError."""
    whole = dict(members)
    for path in members:
        parent = posixpath.dirname(path)
        while parent:
            there = whole.setdefault(parent, Member(kind="folder", mode=0o755))
            if there.kind != "folder":
                raise ContainerError(f"/{path} lies below /{parent}, which is no folder")
            parent = posixpath.dirname(parent)
    return whole


def with_hard_links(members: dict[str, Member]) -> dict[str, Member]:
    """In the tar's order the first name of a file has its content and the others refer to it."""
    groups: dict[str, list[str]] = {}
    for path, member in members.items():
        if member.kind == "hard":
            groups.setdefault(member.target, []).append(path)
    whole = dict(members)
    for target, names in groups.items():
        content = members.get(target)
        if content is None or content.kind != "file":
            raise ContainerError(
                f"/{names[0]} is a hard link to /{target}, which is left out",
                hint="leave it out too, or keep both",
            )
        first, *others = sorted({target, *names}, key=lambda name: name.encode())
        whole[first] = content
        for name in others:
            whole[name] = Member(kind="hard", mode=content.mode, target=first)
    return whole
