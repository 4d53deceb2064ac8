"""Models of rootfs definitions (`docker/NAME.yaml`) and of their locks (`docker/NAME.lock.json`).

People write a definition; `./dev containers.lock` resolves it to a lock, which names every file by SHA-256.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from aotforge.base.manifest_reader import Manifest, load
from aotforge.errors import ContainerError, UnknownNameError, suggest

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Part(Manifest):
    """Some files of a package of any suite, at other paths, without the package's dependencies."""

    package: str
    suite: str
    take: dict[str, str]


class Wheels(Manifest):
    """Wheels of a locked requirements file, unpacked into a folder for the rootfs' own Python."""

    requirements: str
    names: tuple[str, ...]
    python: str
    folder: str


class Definition(Manifest):
    """Contents of a rootfs; paths have no leading slash. `epoch` is the mtime of every member."""

    schema_version: Literal[1] = Field(alias="schema")
    suite: str
    packages: tuple[str, ...]
    without: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    wheels: Wheels | None = None
    exclude: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    links: dict[str, str] = Field(default_factory=dict)
    python: str
    environment: dict[str, str]
    epoch: int

    def digest(self) -> str:
        """SHA-256 of the values: comments and order of keys do not count."""
        text = json.dumps(self.model_dump(mode="json", by_alias=True), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


class LockedFile(Manifest):
    """One package or wheel: size in bytes, SHA-256, and the URL of a package (wheels come by pip)."""

    name: str
    version: str
    size: int
    sha256: Sha256
    url: str = ""


class Lock(Manifest):
    """Every file that a rootfs is made of, and the SHA-256 of the rootfs' tar.

    `snapshot` is the time, as snapshot.debian.org writes it, at which the URLs had these packages.
    """

    schema_version: Literal[2] = Field(alias="schema")
    definition: Sha256
    snapshot: Annotated[str, Field(pattern=r"^\d{8}T\d{6}Z$")]
    packages: tuple[LockedFile, ...]
    parts: tuple[LockedFile, ...]
    wheels: tuple[LockedFile, ...]
    digest: Sha256

    @property
    def files(self) -> tuple[LockedFile, ...]:
        """Every file that a rootfs is made of."""
        return (*self.packages, *self.parts, *self.wheels)

    def text(self) -> str:
        """JSON with a line per file, so that a change is a short diff."""
        lines = []
        for key, value in self.model_dump(mode="json", by_alias=True).items():
            text = json.dumps(value)
            if isinstance(value, list) and value:
                rows = [json.dumps({name: word for name, word in row.items() if word}) for row in value]
                text = "[\n  " + ",\n  ".join(rows) + "\n ]"
            lines.append(f' "{key}": {text}')
        return "{\n" + ",\n".join(lines) + "\n}\n"


@dataclass(frozen=True, kw_only=True)
class RootfsSpec:
    """A rootfs of the checkout: its name, its definition, and the path of its lock."""

    name: str
    definition: Definition
    lock_file: Path


def rootfs_names(checkout: Path) -> list[str]:
    """Every rootfs of the checkout."""
    return sorted(path.stem for path in (checkout / "docker").glob("*.yaml"))


def read_spec(checkout: Path, name: str) -> RootfsSpec:
    """A rootfs of the checkout. Raises UnknownNameError, ManifestError."""
    if name not in (known := rootfs_names(checkout)):
        raise UnknownNameError(f"unknown rootfs {name!r}", cause=suggest(name, known))
    file = checkout / "docker" / f"{name}.yaml"
    return RootfsSpec(name=name, definition=load(file, Definition), lock_file=file.with_suffix(".lock.json"))


def read_lock(spec: RootfsSpec) -> Lock:
    """The lock of a definition. Raises ContainerError when it is missing, not valid or of an older one."""
    try:
        lock = Lock.model_validate_json(spec.lock_file.read_bytes())
    except (OSError, ValidationError) as error:
        raise lock_error(spec, f"is not a valid lock: {error}") from error
    if lock.definition != spec.definition.digest():
        raise lock_error(spec, "does not match its definition, which was changed after it was written")
    return lock


def lock_error(spec: RootfsSpec, what: str) -> ContainerError:
    """The error for a lock that must be written again."""
    hint = f"write it again: ./dev containers.lock --name {spec.name}"
    return ContainerError(f"{spec.lock_file} {what}", hint=hint)
