"""Messages between a build and its workers, as JSON: sessions, orders and results.

Objects themselves travel through the place of the shared cache, named by their SHA-256.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from aotforge.base.source_groups import ROOT, files_digest, group_digest
from aotforge.compile.pool import WorkerLimits
from aotforge.plan.model import build, canonical_json, json_digest
from aotforge.publish.cache.index import SharedObject
from aotforge.toolchain.triton import Toolchain

State = Literal["done", "failed", "lost"]


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Everything on a worker that decides the bytes of images and verdicts. `sources`: names and digests."""

    toolchain: Toolchain
    sources: tuple[tuple[str, str], ...]
    numpy: str


def source_digests(root: Path = ROOT) -> tuple[tuple[str, str], ...]:
    """Digests of a checkout's sources that take part. Raises ToolchainError, OSError."""
    kernels = {path.relative_to(root).as_posix(): path for path in sorted(root.glob("kernels/**/*.py"))}
    messages = {path.name: path for path in sorted(Path(__file__).parent.glob("*.py"))}
    return (
        ("compile worker", group_digest("compile worker")),
        ("verifier", group_digest("verifier")),
        ("cluster builds", files_digest(messages)),
        ("kernels", files_digest(kernels)),
    )


def source_identity(toolchain: Toolchain, root: Path = ROOT) -> Identity:
    """The identity of this machine's checkout with this toolchain. Raises ToolchainError, OSError."""
    import numpy as np  # noqa: PLC0415 - 80 ms, which a build that does not use a cluster does not take

    return Identity(toolchain=toolchain, sources=source_digests(root), numpy=np.__version__)


def difference(wanted: Identity, found: Identity) -> str:
    """How a worker's identity differs from the build's; empty when it does not."""
    for name, value in asdict(wanted.toolchain).items():
        if (other := asdict(found.toolchain)[name]) != value:
            return f"its toolchain has {name} {_short(other)}, not {_short(value)}"
    theirs = dict(found.sources)
    for name, digest in wanted.sources:
        if theirs.get(name) != digest:
            return f"its checkout has other sources of: {name}"
    return "" if wanted.numpy == found.numpy else f"it has numpy {found.numpy}, not {wanted.numpy}"


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:12] if len(text) == 64 else text


@dataclass(frozen=True, kw_only=True)
class Session:
    """What the jobs of one stage of a build have in common.

    `instructions`: names by lanes of a warp for which the interpreter is compiled before the first image is executed.
    """

    identity: Identity
    limits: WorkerLimits
    verify_seconds: float
    instructions: tuple[tuple[int, tuple[str, ...]], ...] = ()

    def encode(self) -> bytes:
        """As an object of the place."""
        return canonical_json(asdict(self)).encode("ascii")

    def toolchain_tree(self) -> dict[str, Any]:
        """JSON of the toolchain, which jobs do not repeat."""
        return asdict(self.identity.toolchain)

    @staticmethod
    def decode(data: bytes) -> Session:
        """Raises ValueError, KeyError, TypeError for bytes that `encode` does not write."""
        return build(Session, json.loads(data))


@dataclass(frozen=True, kw_only=True)
class Reference:
    """An object in the place."""

    sha256: str
    size: int

    @classmethod
    def to(cls, data: bytes) -> Reference:
        """The name of these bytes."""
        return cls(sha256=hashlib.sha256(data).hexdigest(), size=len(data))

    @property
    def shared(self) -> SharedObject:
        """As an entry of the place's index."""
        return SharedObject(sha256=self.sha256, size=self.size, used=0)


@dataclass(frozen=True, kw_only=True)
class Order:
    """One job for a worker: `compile` with the compile job as `body`, or `verify`. `place` is the address of the shared cache.

    Values in `body` are those of JSON, and dataclasses of them.

    `replace`: the place has a damaged object of this result.
    """

    kind: str
    key: str
    label: str
    place: str
    session: Reference
    body: Mapping[str, Any] = field(default_factory=dict)
    replace: bool = False

    def encode(self) -> str:
        """As text. Not `asdict`, which copies every value: ten thousand orders took four seconds of a build."""
        return json.dumps(vars(self), default=vars, separators=(",", ":"))

    @staticmethod
    def decode(text: str) -> Order:
        """Raises ValueError, KeyError, TypeError for text that `encode` does not write."""
        fields = json.loads(text)
        return Order(**{**fields, "session": Reference(**fields["session"])})


@dataclass(frozen=True, kw_only=True)
class Result:
    """The end of an order.

    `done`: `object` is in the place; `failed`: the job itself, with `detail` and `output`; `lost`: the worker could not try.
    """

    state: State
    worker: str
    object: Reference | None = None
    detail: str = ""
    output: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0

    def encode(self) -> str:
        """As text."""
        return json.dumps(asdict(self))

    @staticmethod
    def decode(text: str) -> Result:
        """Raises ValueError, KeyError, TypeError for text that `encode` does not write."""
        fields = json.loads(text)
        found = fields["object"]
        return Result(**{**fields, "object": Reference(**found) if found else None})


@dataclass(frozen=True, kw_only=True)
class Admission:
    """A worker's answer to a session: the jobs that it runs at a time, or why it cannot take part."""

    worker: str
    slots: int = 0
    refused: str = ""

    def encode(self) -> str:
        """As text."""
        return json.dumps(asdict(self))

    @staticmethod
    def decode(text: str) -> Admission:
        """Raises ValueError, TypeError for text that `encode` does not write."""
        return Admission(**json.loads(text))


def resource_name(identity: Identity, place: str) -> str:
    """The Dask resource that workers have which may run jobs of this identity."""
    return f"aotforge-{json_digest({'identity': asdict(identity), 'place': place})[:16]}"
