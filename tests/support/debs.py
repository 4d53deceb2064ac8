"""Small Debian packages, wheels and checkouts that contain them."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aotforge.base.manifest_reader import load
from aotforge.run.rootfs.assemble import assemble
from aotforge.run.rootfs.definitions import Definition, Lock, LockedFile

File = tuple[str, bytes, int]
"""Path, content and mode; a mode of 0o120000 makes a symbolic link, 0o40000 a folder, 0o100000 a hard
link."""


def tar_of(files: Sequence[File], *, mtime: int = 0, owner: int = 0) -> bytes:
    """A package's data, as dpkg-deb writes it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, content, mode in files:
            info = tarfile.TarInfo(f"./{name}")
            info.mtime, info.uid, info.gid, info.mode = mtime, owner, owner, mode & 0o7777
            if mode & 0o170000 == 0o120000:
                info.type, info.linkname = tarfile.SYMTYPE, content.decode()
            elif mode & 0o170000 == 0o40000:
                info.type = tarfile.DIRTYPE
            elif mode & 0o170000 == 0o100000:
                info.type, info.linkname = tarfile.LNKTYPE, f"./{content.decode()}"
            else:
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content) if info.isreg() else None)
    return out.getvalue()


def deb(name: str, files: Sequence[File], *, version: str = "1.0", mtime: int = 0, owner: int = 0) -> bytes:
    """A .deb with these files."""
    control = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nDescription: a test's\n".encode()
    parts = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.xz", lzma.compress(tar_of([("control", control, 0o644)], mtime=mtime))),
        ("data.tar.xz", lzma.compress(tar_of(files, mtime=mtime, owner=owner))),
    ]
    out = b"!<arch>\n"
    for entry, data in parts:
        out += f"{entry:<16}{mtime:<12}{owner:<6}{owner:<6}{'100644':<8}{len(data):<10}`\n".encode()
        out += data + b"\n" * (len(data) % 2)
    return out


def locked(name: str, data: bytes) -> LockedFile:
    """The lock's entry of a package that only the test's own source has."""
    sha256 = hashlib.sha256(data).hexdigest()
    return LockedFile(
        name=name, version="1.0", size=len(data), sha256=sha256, url=f"http://127.0.0.1:1/{name}.deb"
    )


DEFINITION: dict[str, Any] = {
    "schema": 1, "suite": "test", "packages": ["one", "two"], "python": "/usr/bin/python3",
    "environment": {"PATH": "/usr/bin"}, "epoch": 1767225600, "exclude": ["usr/share/doc"],
    "keep": ["usr/share/doc/*/copyright"], "links": {"usr/bin/sh": "dash"},
}  # fmt: skip

PACKAGES: dict[str, list[File]] = {
    "one": [
        ("bin", b"", 0o40755),
        ("bin/dash", b"#!ELF\n", 0o4755),
        ("usr/share/doc/one/README", b"left out", 0o644),
        ("usr/share/doc/one/copyright", b"kept", 0o644),
        ("usr/bin/dash", b"/bin/dash", 0o120777),
    ],
    "two": [
        ("usr/lib/x.so.1", b"library", 0o600),
        ("usr/lib/x.so", b"x.so.1", 0o120777),
        ("usr/lib/y.so.1", b"usr/lib/x.so.1", 0o100644),
    ],
}


def make_checkout(
    folder: Path, mirror: Path, *, packages: Mapping[str, Sequence[File]] = PACKAGES, **changes: Any
) -> Path:
    """A checkout with one rootfs named "small", locked; `mirror` has its packages by their SHA-256."""
    checkout = folder / "checkout"
    (checkout / "docker").mkdir(parents=True)
    mirror.mkdir(exist_ok=True)
    (checkout / "docker" / "small.yaml").write_text(json.dumps({**DEFINITION, **changes}))
    definition, entries = load(checkout / "docker" / "small.yaml", Definition), []
    for name, files in packages.items():
        data = deb(name, files)
        entries.append(locked(name, data))
        (mirror / entries[-1].sha256).write_bytes(data)
    draft = Lock(
        schema=2, definition=definition.digest(), snapshot="20260101T000000Z", packages=tuple(entries),
        parts=(), wheels=(), digest="0" * 64,
    )  # fmt: skip
    digest = assemble(definition, draft, files=mirror.joinpath, tar=folder / "root.tar")
    lock = draft.model_copy(update={"digest": digest})
    (checkout / "docker" / "small.lock.json").write_text(lock.text())
    return checkout
