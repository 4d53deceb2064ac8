"""Models of `manifests/containers.yaml`, of rootfs definitions and of their locks.

People write a definition; `./dev containers.lock` resolves it to a lock, which names every file by SHA-256.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from aotforge.base.manifest_reader import Manifest, load
from aotforge.errors import ContainerError, UnknownNameError, suggest

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Sha1 = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
Inside = Annotated[str, Field(pattern=r"^[^/].*[^/]$|^[^/]$")]
"""A path in a rootfs, without the leading slash."""
PackageName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]+$")]
RootfsName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]


class Containers(Manifest):
    """`manifests/containers.yaml`: names of rootfs images, and paths of their definitions."""

    schema_version: Literal[1] = Field(alias="schema")
    rootfs: dict[RootfsName, Annotated[str, Field(pattern=r"\.yaml$")]]


class Part(Manifest):
    """Some files of a package of any suite, moved to other paths, without the package's dependencies."""

    package: PackageName
    suite: str
    take: dict[Inside, Inside]


class Wheels(Manifest):
    """Wheels of a locked requirements file, unpacked into a folder for the rootfs' own Python."""

    requirements: str
    names: tuple[str, ...]
    python: Annotated[str, Field(pattern=r"^3\.[0-9]+$")]
    folder: Inside


class Definition(Manifest):
    """Contents of a rootfs. `exclude` and `links` hold paths without the leading slash; `epoch` is the mtime of every member."""

    schema_version: Literal[1] = Field(alias="schema")
    suite: str
    packages: tuple[PackageName, ...]
    without: tuple[PackageName, ...] = ()
    parts: tuple[Part, ...] = ()
    wheels: Wheels | None = None
    exclude: tuple[Inside, ...] = ()
    keep: tuple[Inside, ...] = ()
    links: dict[Inside, str] = Field(default_factory=dict)
    folders: tuple[Inside, ...] = ()
    python: str
    environment: dict[str, str]
    epoch: Annotated[int, Field(ge=0)]

    def digest(self) -> str:
        """SHA-256 of the values: comments and order of keys do not count."""
        text = json.dumps(self.model_dump(mode="json", by_alias=True), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


class LockedFile(Manifest):
    """One file by its published name, its size in bytes and its SHA-256."""

    name: str
    version: str
    file: str
    size: int
    sha256: Sha256


class LockedPackage(LockedFile):
    """One .deb; `file` is its path in the archive's pool. snapshot.debian.org finds files by SHA-1."""

    architecture: str
    suite: str
    sha1: Sha1


class LockedWheel(LockedFile):
    """One wheel; `file` is its file name."""


class Lock(Manifest):
    """`<definition>.lock.json`: every file that a rootfs is made of, and the digest of the rootfs."""

    schema_version: Literal[1] = Field(alias="schema")
    definition: Sha256
    packages: tuple[LockedPackage, ...]
    parts: tuple[LockedPackage, ...]
    wheels: tuple[LockedWheel, ...]
    digest: Sha256
    size: int

    @property
    def files(self) -> tuple[LockedFile, ...]:
        """Every file that a rootfs is made of."""
        return (*self.packages, *self.parts, *self.wheels)

    def text(self) -> str:
        """JSON with a line per file, so that a change is a short diff."""
        lines = []
        for key, value in self.model_dump(mode="json", by_alias=True).items():
            if isinstance(value, list) and value:
                rows = ",\n".join(f"  {json.dumps(row)}" for row in value)
                lines.append(f" {json.dumps(key)}: [\n{rows}\n ]")
            else:
                lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
        return "{\n" + ",\n".join(lines) + "\n}\n"


@dataclass(frozen=True, kw_only=True)
class RootfsSpec:
    """A rootfs of the checkout: its name, definition, and paths of the definition and its lock."""

    name: str
    source: str
    definition: Definition
    lock_file: Path

    @property
    def members_file(self) -> Path:
        """The committed member list next to the lock."""
        return self.lock_file.with_name(self.lock_file.name.replace(".lock.json", ".members"))


@dataclass(frozen=True, kw_only=True)
class RootfsImage:
    """A finished root filesystem.

    `digest` is the SHA-256 (hex) of the uncompressed, normalised tar at `tar`: the rootfs' identity. `python` is the absolute path of
    a Python >= 3.9 inside; `environment` are the variables of a process inside (PATH and the like). `value` is the cache's, in
    images for engines; empty until a rootfs is built there.
    """

    name: str
    digest: str
    tar: Path
    python: str
    environment: tuple[tuple[str, str], ...]
    value: str


def rootfs_definitions(checkout: Path) -> Mapping[str, str]:
    """Every rootfs of the checkout: name and path of the definition. Raises ManifestError."""
    return load(checkout / "manifests" / "containers.yaml", Containers).rootfs


def find_rootfs(checkout: Path, name: str) -> RootfsSpec:
    """Raises UnknownNameError, ManifestError."""
    known = rootfs_definitions(checkout)
    if name not in known:
        raise UnknownNameError(f"unknown rootfs {name!r}", cause=suggest(name, known))
    file = checkout / known[name]
    definition, lock = load(file, Definition), file.with_suffix(".lock.json")
    return RootfsSpec(name=name, source=known[name], definition=definition, lock_file=lock)


def read_lock(path: Path) -> Lock:
    """Raises ContainerError when the lock is missing or not valid."""
    hint = "write it: ./dev containers.lock"
    try:
        return Lock.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ContainerError(f"{path}: cannot be read: {error.strerror}", hint=hint) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ContainerError(
            f"{path}: {where or 'file'}: {first['msg']}",
            cause="a merge conflict, an edit by hand or a lock of another version",
            hint=hint,
        ) from None
