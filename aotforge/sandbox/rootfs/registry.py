"""A registry image by digest as a root: pulled through an engine, exported, and normalised to the same kind of tar as any other root.

The engine checks the image's digest; the tar's own digest is what the lock records, so the image may come from any copy of a registry.
"""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from aotforge.base.progress import Observer
from aotforge.errors import ContainerError
from aotforge.sandbox.rootfs.assemble import Assembled, with_hard_links, with_parents
from aotforge.sandbox.rootfs.members import Member, Spool, file_mode, member_list, write_tar
from aotforge.sandbox.rootfs.rootfs_cache import RootfsSpec

EPOCH = 1767225600
"""Every member's time, as in definitions: 2026-01-01T00:00:00Z."""

_ENGINES_OWN = (".dockerenv", "run/.containerenv", "dev", "proc", "sys")
_EMPTY = ("etc/hostname", "etc/hosts", "etc/machine-id", "etc/resolv.conf")


def pull_root(named: RootfsSpec, tar: Path, observer: Observer) -> Assembled:
    """Write the root of a registry image to `tar`. Raises ContainerError, OSError."""
    image = str(named.source.image)
    import requests  # noqa: PLC0415

    import docker  # noqa: PLC0415 - only for registry images

    try:
        client = docker.from_env(timeout=600)
        observer.stage(f"{named.name}: pulling {image}")
        client.images.pull(image)
        container = client.containers.create(image, command=["/"], network_disabled=True)
        try:
            observer.stage(f"{named.name}: exporting")
            return _normalised(_Stream(container.export()), tar)
        finally:
            container.remove(force=True)
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise ContainerError(
            f"{image} cannot be pulled for {named.name}: {str(error)[:400]}",
            cause="no engine, no permission to use it, no network, or the registry has no image of this digest",
            hint="start Docker Engine (or set DOCKER_HOST), check `image` in manifests/containers.yaml",
        ) from error


class _Stream:
    """An iterator of bytes as a file that tarfile reads."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = b""

    def read(self, size: int) -> bytes:
        while len(self._left) < size:
            piece = next(self._pieces, b"")
            if not piece:
                break
            self._left += piece
        data, self._left = self._left[:size], self._left[size:]
        return data


def _normalised(stream: Any, tar: Path) -> Assembled:
    """Owners, times, devices and what the engine put in go; the rest stays."""
    members: dict[str, Member] = {
        name: Member(kind="folder", mode=0o1777 if name == "tmp" else 0o755)
        for name in ("dev", "etc", "proc", "sys", "tmp", "in", "out", "work")
    }
    with tempfile.TemporaryFile(dir=tar.parent) as spooled, tar.open("wb") as out:
        spool = Spool(spooled)
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for info in archive:
                name = info.name.removeprefix("./").rstrip("/")
                if (
                    not name
                    or name.startswith(tuple(f"{own}/" for own in _ENGINES_OWN))
                    or name in _ENGINES_OWN
                ):
                    continue
                if name.startswith("/") or ".." in name.split("/"):
                    raise ContainerError(f"the engine exports a member outside the root: {info.name}")
                content = archive.extractfile(info) if info.isreg() else None
                member = _member(spool, info, content)
                if member is not None:
                    members[name] = member
        with tempfile.TemporaryFile() as nothing:
            for name in _EMPTY:
                members[name] = spool.add(nothing, 0o644)
        # nothing lies below a link either, so that unpacking stays in its folder whatever an engine sends
        members = with_hard_links(with_parents(members))
        digest, size = write_tar(members, spool, out, epoch=EPOCH)
    return Assembled(digest=digest, size=size, members=member_list(members))


def _member(spool: Spool, info: tarfile.TarInfo, content: Any) -> Member | None:
    if content is not None:
        stream: BinaryIO = content
        return spool.add(stream, info.mode)
    if info.isdir():
        return Member(kind="folder", mode=0o1777 if info.mode & 0o1000 else 0o755)
    if info.issym():
        return Member(kind="link", mode=0o777, target=info.linkname)
    if info.islnk():
        return Member(kind="hard", mode=file_mode(info.mode), target=info.linkname.removeprefix("./"))
    return None  # devices and pipes: engines and bubblewrap bring their own
