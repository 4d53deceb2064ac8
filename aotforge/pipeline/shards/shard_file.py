"""The file format of a shard, and the identity that shards of one build have in common.

A shard artifact is an uncompressed USTAR archive: `part.json`, then the files that it lists, sorted. `part.json` is canonical
JSON: `{"format": 1, "about": the manifest, "files": {name: {"sha256": ..., "size": ..., "executable": ...} or {"link":
target}}, "sha256": ...}`, the last one of the JSON of the rest. Equal shards give equal bytes, and a file that is not byte for
byte what `encode` makes of its content is damaged: one flipped bit anywhere is found.
"""

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from aotforge.base.source_groups import group_digest
from aotforge.compile.cache_entry import VERSION
from aotforge.errors import ShardError
from aotforge.formats.archive import Link, Member, entry, write_tar
from aotforge.formats.tar_reader import Entry, UnsafeArchiveError, read_tar
from aotforge.formats.untrusted_file import parse_json
from aotforge.plan.model import Plan, canonical_json, json_digest, plan_to_json

FORMAT = 1
SUFFIX = ".part.tar"
IMAGES, RUNTIME = "images", "runtime"
"""Kinds of shard artifacts."""

IDENTITY = {
    "profile": "it was built for another profile",
    "toolchain": "it was compiled by another Triton, allocator or environment",
    "plan": "the kernels, rules or manifests were different",
    "verifier": "its images were verified with other cases or another virtual GPU",
    "producers": "it was made by another revision of aotforge",
}
"""Fields of an identity, the most specific first, and the meaning of a difference."""

_HEADER = "part.json"


@dataclass(frozen=True, kw_only=True)
class ArtifactFile:
    """A regular file, or a symbolic link to `link`."""

    content: bytes = b""
    executable: bool = False
    link: str = ""


@dataclass(frozen=True, kw_only=True)
class ShardArtifact:
    """Files by name; `manifest` has JSON values that identify the shard and its build."""

    manifest: Mapping[str, Any]
    files: Mapping[str, ArtifactFile]


def identity(plan: Plan, verifier: str) -> dict[str, str]:
    """SHA-256 of everything that shards of a build of `plan` must agree on, by field.

    `verifier` is `plans_verifier_digest` of the plan.
    """
    return {
        "profile": plan.profile,
        "toolchain": json_digest(plan.toolchain),
        "plan": hashlib.sha256(plan_to_json(plan).encode()).hexdigest(),
        "verifier": verifier,
        "producers": group_digest("shards"),
    }


def entry_name(key: str) -> str:
    """Path of a cache entry, below the cache folder and in a shard."""
    return f"images-{VERSION}/{key[:2]}/{key}"


def encode(artifact: ShardArtifact) -> bytes:
    """The file's bytes."""
    sink = io.BytesIO()
    listed = {name: _listed(file) for name, file in artifact.files.items()}
    content = {"format": FORMAT, "about": artifact.manifest, "files": listed}
    digest = hashlib.sha256(canonical_json(content).encode()).hexdigest()
    header = canonical_json({**content, "sha256": digest})
    files: dict[str, Member | Link] = {_HEADER: Member(content=header.encode())}
    files |= {name: _member(artifact.files[name]) for name in sorted(artifact.files)}
    write_tar(sink, (entry(name, member) for name, member in files.items()))
    return sink.getvalue()


def decode(data: bytes, path: Path) -> ShardArtifact:
    """Inverse of `encode`. Raises ShardError naming `path` for anything but its result."""
    try:
        members = _members(data)
        header = parse_json(members.pop(_HEADER).content)
        found = header["format"]
        if found != FORMAT:
            raise ShardError(
                f"{path} is a shard of format {found}, this version reads format {FORMAT}",
                cause="it was made by another version of aotforge",
                hint="./dev build --shard and --gather with the same revision",
            )
        artifact = ShardArtifact(manifest=header["about"], files=members)
        _check_names(members)
        intact = encode(artifact) == data
    except UnsafeArchiveError as error:
        raise damaged(path, str(error)) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from error
    if not intact:
        raise damaged(path, "its bytes do not match its own list of files")
    return artifact


def damaged(path: Path, reason: str) -> ShardError:
    """The error for a file whose content was altered."""
    return ShardError(
        f"{path} is damaged: {reason}",
        cause="it was truncated or altered, or is not a shard of a build",
        hint="copy it again, or make it again: ./dev build --shard ...",
    )


def _check_names(files: Mapping[str, ArtifactFile]) -> None:
    """Checks that every file is extracted below its folder. Raises ValueError."""
    for name, file in files.items():
        if PurePosixPath(name).is_absolute() or {"..", "."} & set(name.split("/")):
            raise ValueError(f"a member is named {name}")
        if file.link and ("/" in file.link or file.link in {"..", "."}):
            raise ValueError(f"{name} links to {file.link}")


def _listed(file: ArtifactFile) -> dict[str, object]:
    if file.link:
        return {"link": file.link}
    return {
        "sha256": hashlib.sha256(file.content).hexdigest(),
        "size": len(file.content),
        "executable": file.executable,
    }


def _member(file: ArtifactFile) -> Member | Link:
    return Link(target=file.link) if file.link else Member(content=file.content, executable=file.executable)


def _members(data: bytes) -> dict[str, ArtifactFile]:
    """Files and links of a tar. Raises UnsafeArchiveError."""
    found: dict[str, ArtifactFile] = {}

    def keep(entry: Entry) -> None:
        if entry.content is not None:
            executable = bool(entry.info.mode & 0o100)
            found[str(entry.path)] = ArtifactFile(content=entry.content.read(), executable=executable)
        elif entry.info.issym():
            found[str(entry.path)] = ArtifactFile(link=entry.info.linkname)

    read_tar([data], keep)
    return found
