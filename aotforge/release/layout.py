"""Content of a release: members of each tarball, `resources.json`."""

from collections.abc import Iterable
from dataclasses import asdict
from importlib import resources
from pathlib import Path

from aotforge.base.files import read_bytes
from aotforge.errors import ReleaseError
from aotforge.formats.archive import Link, Member
from aotforge.release.contents import FORMAT, image_rows, json_document
from aotforge.release.model import ImageRecord, PackInput

TOP = "aotriton"
DEVELOPMENT_NAME = "libaotriton_v2.so"
_LICENCES = "share/licenses/aotriton"


def runtime_tree(
    prefix: Path, *, soname: str, other_names: tuple[str, ...], licence: bytes
) -> dict[str, Member | Link]:
    """The files of the runtime's install prefix, with the library's links and licences."""
    tree: dict[str, Member | Link] = {}
    for path in sorted(path for path in prefix.rglob("*") if path.is_file() and not path.is_symlink()):
        name = path.relative_to(prefix).as_posix()
        data = read_bytes(path, ReleaseError)
        tree[f"{TOP}/{name}"] = Member(content=data, executable=name == f"lib/{soname}")
    tree |= {f"{TOP}/lib/{name}": Link(target=soname) for name in (DEVELOPMENT_NAME, *other_names)}
    return tree | licences(licence, runtime=True)


def images_tree(packed: PackInput, *, licence: bytes) -> dict[str, Member | Link]:
    """One image pack where the library looks for it."""
    folder = f"{TOP}/lib/aotriton.images/{packed.pack.name}"
    files = {f"{folder}/{name}": Member(content=data) for name, data in packed.pack.files.items()}
    return files | licences(licence)


def assembly_tree(packed: PackInput, *, licence: bytes) -> dict[str, Member | Link]:
    """Assembly text of every image, named by the image's SHA-256, and `resources.json`."""
    folder = f"{TOP}/share/aotriton/asm/{packed.pack.name}"
    texts: dict[str, Member | Link] = {
        f"{folder}/{digest}.s": Member(content=text.encode("utf-8"))
        for digest, text in packed.assembly.items()
    }
    texts[f"{folder}/resources.json"] = Member(content=resources_json(packed.pack.name, packed.records))
    return texts | licences(licence)


def licences(ours: bytes, *, runtime: bool = False) -> dict[str, Member | Link]:
    """The project's licence; with the runtime also that of zstd, whose decoder is part of the library."""
    members: dict[str, Member | Link] = {f"{TOP}/{_LICENCES}/LICENSE": Member(content=ours)}
    if runtime:
        text = resources.files("aotforge.release").joinpath("licences/zstd.txt").read_bytes()
        members[f"{TOP}/{_LICENCES}/LICENSE.zstd"] = Member(content=text)
    return members


def resources_json(pack: str, records: Iterable[ImageRecord]) -> bytes:
    """Records of one pack, in the units of `aotforge.compile.Resources`; their order does not matter.

    `labels` and `jobs` (job keys) correspond: compile jobs that gave the same image with the same resources.
    """
    rows = [
        {"labels": labels, "jobs": jobs, "digest": digest, **asdict(measured)}
        for labels, jobs, (digest, measured) in image_rows(records, lambda r: (r.digest, r.resources))
    ]
    return json_document({"format": FORMAT, "pack": pack, "images": rows})
