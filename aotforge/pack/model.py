"""Values of the pack stage: an image pack as bytes, and the contents of its files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from aotforge.base.manifest_reader import Manifest
from aotforge.plan.model import GridTerm, Predicate, ServedGate
from aotforge.rules import Operator, ValueType

SIGNATURE_FILE = "__signature__"
DISPATCH_FILE = "dispatch.aotd"
CONTAINER_SUFFIX = ".aoti"
FORMAT = 1


class Compressor(Manifest):
    """Compression of containers, set in manifests/release.yaml.

    `level` is zstd's (1 to 22), `dictionary_bytes` the largest decoded size of a container's dictionary: the
    runtime decodes and verifies it before a container's first image, so it adds to the first launch's time.
    """

    level: Annotated[int, Field(ge=1, le=22)] = 19
    dictionary_bytes: Annotated[int, Field(ge=0, le=4 * 1024 * 1024)] = 256 * 1024


@dataclass(frozen=True, kw_only=True)
class ImagePack:
    """One directory below aotriton.images: its name (e.g. amd-gfx908) and the bytes of each of its files."""

    name: str
    files: Mapping[str, bytes]


@dataclass(frozen=True, kw_only=True)
class ImageEntry:
    """An entry of a container's index: SHA-256 of the image; its frame has `stored` bytes at `offset`."""

    digest: bytes
    offset: int
    stored: int
    size: int


@dataclass(frozen=True, kw_only=True)
class ContainerIndex:
    """Header and index of a container; offsets and sizes in bytes from the start of the file."""

    identity: bytes
    images: tuple[ImageEntry, ...]
    dictionary_offset: int
    dictionary_stored: int
    dictionary_size: int
    dictionary_digest: bytes


@dataclass(frozen=True, kw_only=True)
class DispatchContainer:
    """A container that the dispatch data refers to: file name and container ID."""

    file: str
    identity: bytes


@dataclass(frozen=True, kw_only=True)
class DispatchChoice:
    """An image for a functional: its number in the index, `threads` per workgroup, grid axes x first."""

    image: int
    symbol: str
    dynamic_shared_bytes: int
    threads: int
    predicates: tuple[Predicate, ...]
    grid: tuple[tuple[GridTerm, ...], ...]


@dataclass(frozen=True, kw_only=True)
class DispatchFunctional:
    """Choices for one arch and one set of key values, in the order in which they are tried."""

    arch: str
    key: tuple[int, ...]
    choices: tuple[DispatchChoice, ...]


@dataclass(frozen=True, kw_only=True)
class DispatchKernel:
    """How one kernel serves one step of an operator; `parameters` are in kernarg order."""

    name: str
    operator: str
    step: int
    container: str
    keys: tuple[str, ...]
    ladder: bool
    parameters: tuple[tuple[ValueType, str], ...]
    null_pointers: int
    functionals: tuple[DispatchFunctional, ...]


@dataclass(frozen=True, kw_only=True)
class DispatchTable:
    """Everything in dispatch.aotd."""

    archs: tuple[str, ...]
    containers: tuple[DispatchContainer, ...]
    operators: tuple[Operator, ...]
    kernels: tuple[DispatchKernel, ...]
    gates: tuple[ServedGate, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PackedImage(DispatchChoice):
    """One row of `images`: an image and one call that it serves; sizes in bytes.

    `tried` counts from 0 among the functional's choices, `key` are (operator value, number) pairs.
    """

    digest: str
    container: str
    kernel: str
    operator: str
    step: int
    arch: str
    key: tuple[tuple[str, int], ...]
    tried: int
    size: int
    stored: int
