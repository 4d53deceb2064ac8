"""Models of the files that name a root: `manifests/containers.yaml`, a definition, and its lock.

A definition is short and written by people; a lock is made from it (`invoke containers.lock`) and names every file to the byte.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from aotforge.base.manifest_reader import Manifest
from aotforge.errors import ContainerError

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Sha1 = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
Inside = Annotated[str, Field(pattern=r"^[^/].*[^/]$|^[^/]$")]
"""A path inside a root, without the leading slash."""
PackageName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]+$")]
ImageName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}$")]


class Source(Manifest):
    """Where a root comes from: a definition, or a registry image by digest (a tag alone may be moved and is refused)."""

    definition: str = ""
    image: ImageName | None = None
    python: str = "/usr/bin/python3"
    environment: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one(self) -> Source:
        if bool(self.definition) == bool(self.image):
            raise ValueError("exactly one of definition and image is needed")
        return self


class Containers(Manifest):
    """`manifests/containers.yaml`."""

    schema_version: Literal[1] = Field(alias="schema")
    roots: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")], Source]


class Part(Manifest):
    """Some files of a package of any suite, moved elsewhere, without what the package depends on."""

    package: PackageName
    suite: str
    take: dict[Inside, Inside]


class Wheels(Manifest):
    """Wheels of a locked requirements file, unpacked into a folder of the root's own Python."""

    requirements: str
    names: tuple[str, ...]
    python: Annotated[str, Field(pattern=r"^3\.[0-9]+$")]
    folder: Inside


class Definition(Manifest):
    """What a root is made of. `exclude` and `links` hold paths inside, without the leading slash; `epoch` is every member's time."""

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
        """SHA-256 of the meaning: comments and order of keys do not count."""
        text = json.dumps(self.model_dump(mode="json", by_alias=True), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


class LockedFile(Manifest):
    """One file by its name where it is published, its size in bytes and its SHA-256."""

    name: str
    version: str
    file: str
    size: int
    sha256: Sha256


class LockedPackage(LockedFile):
    """One .deb; `file` is its path in the archive's pool. SHA-1 is what snapshot.debian.org asks for."""

    architecture: str
    suite: str
    sha1: Sha1


class LockedWheel(LockedFile):
    """One wheel; `file` is its file name."""


class Lock(Manifest):
    """`<definition>.lock.json`: every file that a root is made of, and the digest of the root."""

    schema_version: Literal[1] = Field(alias="schema")
    definition: Sha256
    packages: tuple[LockedPackage, ...]
    parts: tuple[LockedPackage, ...]
    wheels: tuple[LockedWheel, ...]
    digest: Sha256
    size: int

    @property
    def files(self) -> tuple[LockedFile, ...]:
        """Every file that a root is made of."""
        return (*self.packages, *self.parts, *self.wheels)

    def text(self) -> str:
        """As it is committed: a line per file, so that a change is a short diff."""
        fields = self.model_dump(mode="json", by_alias=True)
        lines = []
        for key, value in fields.items():
            if isinstance(value, list) and value:
                rows = ",\n".join(f"  {json.dumps(row)}" for row in value)
                lines.append(f" {json.dumps(key)}: [\n{rows}\n ]")
            else:
                lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
        return "{\n" + ",\n".join(lines) + "\n}\n"


def read_lock(path: Path) -> Lock:
    """The lock at `path`. Raises ContainerError when it is missing or no lock."""
    hint = "make it: invoke containers.lock"
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
