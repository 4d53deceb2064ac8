"""A small release, really built, and altered copies of it whose checksums agree again: only what was altered
is wrong."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aotforge.formats.archive import Link, Member, sha256_file, write_tar_gz
from aotforge.formats.sums import TAR_SUMS, sums_bytes
from aotforge.pipeline.build_release import build
from aotforge.pipeline.display import BuildDisplay
from aotforge.pipeline.requests import BuildRequest

from .runtime import CACHE, ROOT

RUNTIME, IMAGES, TEXTS = "-shared.tar.gz", "-images-", "-asm-"


def build_small(output: Path, *, version: str | None = None) -> Path:
    """The release of the profile `smoke` for gfx908 at an API level, compiled and verified unless the
    project's cache has it; its folder."""

    request = BuildRequest(
        root=ROOT,
        archs=("gfx908",),
        profile="smoke",
        output=output,
        cache=CACHE,
        jobs=2,
        version=version,
        environment=dict(os.environ),
    )
    return build(request, observer=BuildDisplay(quiet=True)).release.folder


Tree = dict[str, Member | Link]


def altered(release: Path, target: Path, kind: str, change: Callable[[Tree], object]) -> Path:
    """A copy of the release with `change` made in every archive whose name has `kind`; sums and MANIFEST.json
    follow."""
    shutil.copytree(release, target)
    written: dict[str, tuple[Path, str]] = {}
    tars: dict[str, str] = {}
    for path in sorted(target.glob(f"*{kind}*")):
        digest = sha256_file(path)
        if digest in written:
            made, tar = written[digest]
            path.unlink()
            path.hardlink_to(made)
        else:
            members = read_members(path)
            change(members)
            path.unlink()
            tar = write_tar_gz(path, members, epoch=1767225600)
            written[digest] = (path, tar)
        tars[path.name.removesuffix(".gz")] = tar
    edit_manifest(target, lambda manifest: manifest["tarballs"].update(tars))
    return target


def read_members(path: Path) -> Tree:
    """An archive's files and links."""
    members: Tree = {}
    with tarfile.open(path, "r:gz") as tar:
        for info in tar:
            stream = tar.extractfile(info) if info.isreg() else None
            if stream is not None:
                members[info.name] = Member(content=stream.read(), executable=bool(info.mode & 0o100))
            elif info.issym():
                members[info.name] = Link(target=info.linkname)
    return members


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """MANIFEST.json changed, and both lists of sums made anew."""
    path = folder / "MANIFEST.json"
    manifest = json.loads(path.read_bytes())
    change(manifest)
    path.unlink()
    path.write_text(json.dumps(manifest, indent=1) + "\n")
    tars = folder / TAR_SUMS
    tars.unlink()
    tars.write_bytes(sums_bytes(manifest["tarballs"] | {path.name: sha256_file(path)}))
    reseal(folder)


def reseal(folder: Path) -> None:
    """SHA256SUMS over the files of the folder."""
    sums = folder / "SHA256SUMS"
    sums.unlink()
    lines = [f"{sha256_file(path)}  {path.name}\n" for path in sorted(folder.iterdir())]
    sums.write_text("".join(lines))


def edit_text(name: str, old: str, new: str) -> Callable[[Tree], None]:
    """A change of one text file in a tree; `old` must be there."""

    def change(tree: Tree) -> None:
        member = tree[name]
        assert isinstance(member, Member)
        text = member.content.decode()
        assert old in text
        tree[name] = Member(content=text.replace(old, new).encode())

    return change


def edit_bytes(name: str, old: bytes, new: bytes) -> Callable[[Tree], None]:
    """A change of bytes of the same length in one file of a tree."""

    def change(tree: Tree) -> None:
        member = tree[name]
        assert isinstance(member, Member) and old in member.content and len(old) == len(new)
        tree[name] = Member(content=member.content.replace(old, new), executable=member.executable)

    return change
