"""Small Debian packages, wheels and checkouts that contain them."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aotforge.base.manifest_reader import load
from aotforge.sandbox.rootfs.assemble import assemble
from aotforge.sandbox.rootfs.cache_files import Store
from aotforge.sandbox.rootfs.definitions import Definition, Lock, LockedPackage, LockedWheel

File = tuple[str, bytes, int]
"""Path, content and mode; a mode of 0o120000 makes a symbolic link, 0o40000 a folder, 0o100000 a hard link."""


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


def wheel(files: Mapping[str, bytes]) -> bytes:
    """A wheel with these files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def locked(name: str, data: bytes) -> LockedPackage:
    """The lock's entry of a package."""
    return LockedPackage(
        name=name, version="1.0", architecture="amd64", suite="test", file=f"pool/main/{name}_1.0_amd64.deb",
        size=len(data), sha256=hashlib.sha256(data).hexdigest(), sha1=hashlib.sha1(data, usedforsecurity=False).hexdigest(),
    )  # fmt: skip


DEFINITION: dict[str, Any] = {
    "schema": 1, "suite": "test", "packages": ["one", "two"], "python": "/usr/bin/python3",
    "environment": {"PATH": "/usr/bin"}, "epoch": 1767225600, "exclude": ["usr/share/doc"],
    "keep": ["usr/share/doc/*/copyright"], "links": {"usr/bin/sh": "dash"}, "folders": ["work"],
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
) -> tuple[Path, Lock]:
    """A checkout with one root named "small", locked; its packages lie in `mirror` by their pool names."""
    checkout = folder / "checkout"
    (checkout / "manifests").mkdir(parents=True)
    (checkout / "docker").mkdir()
    manifest = {"schema": 1, "rootfs": {"small": "docker/small.yaml"}}
    (checkout / "manifests" / "containers.yaml").write_text(json.dumps(manifest))
    (checkout / "docker" / "small.yaml").write_text(json.dumps({**DEFINITION, **changes}))
    entries = []
    for name, files in packages.items():
        data = deb(name, files)
        entries.append(locked(name, data))
        place = mirror / entries[-1].file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return checkout, write_lock(checkout, mirror, entries)


def write_lock(
    checkout: Path, mirror: Path, entries: Sequence[LockedPackage], wheels: Sequence[LockedWheel] = ()
) -> Lock:
    """Lock and member list of the small root, out of packages in `mirror`."""
    definition = load(checkout / "docker" / "small.yaml", Definition)
    store = Store(mirror / "by-digest")
    for place in (path for path in mirror.rglob("*") if path.suffix in {".deb", ".whl"}):
        with place.open("rb") as file:
            store.put(hashlib.sha256(place.read_bytes()).hexdigest(), file)
    draft = Lock(
        schema=1, definition=definition.digest(), packages=tuple(entries), parts=(), wheels=tuple(wheels),
        digest="0" * 64, size=0,
    )  # fmt: skip
    tar = mirror / "root.tar"
    made = assemble(definition, draft, files=store.checked, tar=tar, on_file=lambda done, total: None)
    lock = draft.model_copy(update={"digest": made.digest, "size": made.size})
    (checkout / "docker" / "small.lock.json").write_text(lock.text())
    (checkout / "docker" / "small.members").write_text(made.members)
    return lock
