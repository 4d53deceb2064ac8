"""Content of a release: members of each tarball, `resources.json`, `MANIFEST.json`.

Members are below the one top folder that PyTorch's CMake expects.
"""

import json
import math
import re
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path

from aotforge.base.files import read_bytes
from aotforge.errors import ReleaseError
from aotforge.formats.archive import Link, Member
from aotforge.formats.artifact_names import ArtifactName, parse_artifact_name
from aotforge.formats.untrusted_tar import UnsafeArchiveError
from aotforge.pack.reader import open_files
from aotforge.release.model import ImageRecord, PackInput

FORMAT = 1
TOP = "aotriton"
DEVELOPMENT_NAME = "libaotriton_v2.so"
_LICENCES = "share/licenses/aotriton"
_REQUIRED = ("include/aotriton/", "lib/cmake/aotriton/")
_TREES = {
    "runtime": (
        "include/aotriton",
        "include/aotforge",
        "lib/cmake/aotriton",
        "lib/cmake/aotforge_ops",
        _LICENCES,
    ),
    "windows": ("include/aotriton", "include/aotforge", "lib/cmake/aotriton", _LICENCES),
}
"""Folders of an archive by its kind that may have folders."""
_FILES = {
    "runtime": re.compile(r"lib/(libaotriton_v2\.so(\.\d+){0,3}|libaotforge_ops\.(so|a))"),
    "windows": re.compile(
        r"lib/(aotriton_v2\.(dll|lib)|libaotriton_v2\.dll\.a|dl\.(dll|lib)|libdl(\.dll)?\.a)"
        r"|bin/dropin\.exe|include/dlfcn\.h|share/doc/aotriton/windows\.txt"
    ),
}
"""Its other files."""


def check_names(file: str) -> Callable[[tarfile.TarInfo], None]:
    """For `read_archive`: raises UnsafeArchiveError for an entry that the release's archive named `file` does not have.

    A pack in another pack's archive would be installed and served, and neither verified nor listed.
    """
    archive = parse_artifact_name(file)

    def check(info: tarfile.TarInfo) -> None:
        if archive and (
            violation := entry_violation(archive, info.name, folder=info.isdir(), link=info.issym())
        ):
            raise UnsafeArchiveError(violation)

    return check


def entry_violation(archive: ArtifactName, name: str, *, folder: bool = False, link: bool = False) -> str:
    """Why an archive of this kind does not have the entry; empty for one that it may have. No folder and no link: a file."""
    top, _, path = name.removesuffix("/").partition("/")
    trees, files = _TREES.get(archive.kind, ()), _FILES.get(archive.kind)
    below = any(path.startswith(f"{tree}/") for tree in trees)
    packs = "share/aotriton/asm" if archive.kind == "asm" else "lib/aotriton.images"
    flat = (*(f"{packs}/{one}" for one in sorted(archive.packs)), _LICENCES)
    if folder:
        above = not path or any(f"{one}/".startswith(f"{path}/") for one in (*trees, *flat))
        holds = above or below
    else:
        holds = bool(files and files.fullmatch(path))
        if not link:
            holds = holds or below or path.rpartition("/")[0] in flat
    return "" if holds and top == TOP else f"{name!r} is not of an archive of kind {archive.kind}"


def runtime_tree(
    prefix: Path, *, soname: str, other_names: tuple[str, ...], licence: bytes
) -> dict[str, Member | Link]:
    """The runtime's install prefix with links and licences.

    The prefix may hold links among the library's names only. Raises ReleaseError for any other link, and when the
    library, the headers or the CMake package are missing.
    """
    names = {DEVELOPMENT_NAME, *other_names}
    tree: dict[str, Member | Link] = {}
    for path in sorted(path for path in prefix.rglob("*") if path.is_symlink() or not path.is_dir()):
        name = path.relative_to(prefix).as_posix()
        if path.is_symlink():
            if path.parent.name == "lib" and path.name in names and path.resolve().name == soname:
                continue
            raise ReleaseError(f"{path} is a link, which the runtime's install tree must not have")
        if not path.is_file():
            raise ReleaseError(f"{path} is neither a file nor a folder")
        tree[f"{TOP}/{name}"] = Member(
            content=read_bytes(path, ReleaseError), executable=name == f"lib/{soname}"
        )
    for wanted in (f"lib/{soname}", *_REQUIRED):
        if not any(name.startswith(f"{TOP}/{wanted}") for name in tree):
            raise ReleaseError(
                f"{prefix} has no {wanted}",
                cause="the runtime was not installed completely",
                hint="build the runtime again: ./dev build",
            )
    tree |= {f"{TOP}/lib/{name}": Link(target=soname) for name in names}
    return tree | licences(licence, runtime=True)


def images_tree(packed: PackInput, *, licence: bytes) -> dict[str, Member | Link]:
    """One image pack where the library looks for it."""
    folder = f"{TOP}/lib/aotriton.images/{packed.pack.name}"
    files = {f"{folder}/{name}": Member(content=data) for name, data in packed.pack.files.items()}
    return files | licences(licence)


def assembly_tree(packed: PackInput, *, licence: bytes) -> dict[str, Member | Link]:
    """Assembly text of every image, named by the image's SHA-256 as `images` shows it, and `resources.json`."""
    folder = f"{TOP}/share/aotriton/asm/{packed.pack.name}"
    texts: dict[str, Member | Link] = {
        f"{folder}/{digest}.s": Member(content=text.encode("utf-8"))
        for digest, text in packed.assembly.items()
    }
    texts[f"{folder}/resources.json"] = Member(content=resources_json(packed.pack.name, packed.records))
    return texts | licences(licence)


def licences(ours: bytes, *, runtime: bool = False) -> dict[str, Member | Link]:
    """The project's licence; with the runtime also that of zstd, whose decoder is part of the library."""
    found: dict[str, Member | Link] = {f"{TOP}/{_LICENCES}/LICENSE": Member(content=ours)}
    if runtime:
        text = resources.files("aotforge.release").joinpath("licences/zstd.txt").read_bytes()
        found[f"{TOP}/{_LICENCES}/LICENSE.zstd"] = Member(content=text)
    return found


def resources_json(pack: str, records: Iterable[ImageRecord]) -> bytes:
    """The records of one pack; equal records in any order give equal bytes.

    `{"format": 1, "pack": ..., "images": [{"labels": [...], "jobs": [...], "digest": ..., <fields of Resources>}]}`.
    `labels` and `jobs` (job keys) correspond; several when compile jobs gave the same image with the same resources.
    Units are those of `aotforge.compile.Resources`. Images are sorted by their first label.
    """
    rows = _rows((record, {"digest": record.digest, **asdict(record.resources)}) for record in records)
    return _encoded({"format": FORMAT, "pack": pack, "images": rows})


def manifest_json(
    release: str,
    packs: Sequence[PackInput],
    platform: str,
    development: Sequence[str],
    tars: Mapping[str, str],
) -> bytes:
    """What a release consists of; equal arguments give equal bytes, which hold neither time nor machine.

    `{"format": 1, "release": ..., "verified": ..., "development": [...], "platform": ..., "tarballs": {name: SHA-256 of the tar},
    "packs": [{"name": ..., "profile": ..., "images": [{"labels": [...], "jobs": [...], "digest": ..., "verdict": {...}}]}]}`.
    `verdict` is null for an image that was not executed; else `outcome`, the names of its `cases`, `runs` (launches),
    `worst` (largest error as a share of the allowed one, see docs/verification.md; null when infinite) and `tools`, the
    verifier's SHA-256.
    """
    manifest = {
        "format": FORMAT,
        "release": release,
        "verified": all(record.passed for one in packs for record in one.records),
        "development": list(development),
        "platform": platform,
        "tarballs": dict(sorted(tars.items())),
        "packs": [
            {
                "name": one.pack.name,
                "profile": open_files(one.pack).signature.profile,
                "images": _rows((r, {"digest": r.digest, "verdict": _verdict(r)}) for r in one.records),
            }
            for one in packs
        ],
    }
    return _encoded(manifest)


def _verdict(record: ImageRecord) -> dict[str, object] | None:
    verdict = record.verdict
    if verdict is None or verdict.digest != record.digest:
        return None
    return {
        "outcome": verdict.outcome,
        "cases": verdict.cases,
        "runs": verdict.runs,
        # processors differ far behind the second decimal
        "worst": round(verdict.worst, 2) if math.isfinite(verdict.worst) else None,
        "tools": verdict.verifier_digest,
    }


def _rows(records: Iterable[tuple[ImageRecord, dict[str, object]]]) -> list[dict[str, object]]:
    """One row per image and its fields, with all of its jobs."""
    jobs: dict[str, list[tuple[str, str]]] = {}
    for record, fields in records:
        jobs.setdefault(json.dumps(fields), []).append((record.label, record.key))
    rows: list[dict[str, object]] = []
    for fields_json in sorted(jobs, key=lambda text: (min(jobs[text]), text)):
        labels, keys = zip(*sorted(jobs[fields_json]), strict=True)
        rows.append({"labels": labels, "jobs": keys, **json.loads(fields_json)})
    return rows


def _encoded(value: object) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode("ascii")
