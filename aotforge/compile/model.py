"""Values of the compile stage: an image with its resources and arguments, and the events of a build."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from aotforge.plan.model import JobKey

_SIZES = {"ptr": 8, "i32": 4, "i64": 8, "u64": 8, "f32": 4}


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resource use of one image on its arch, from the code object's metadata and Triton's.

    Registers per lane (`sgpr` per wave), `spills` in registers, `scratch_bytes` per lane, `lds_bytes` per workgroup (static and
    dynamic together), `dynamic_lds_bytes` to be passed at launch, `occupancy` in waves per SIMD (registers, LDS and wave
    limits together).
    """

    vgpr: int
    agpr: int
    sgpr: int
    vgpr_spills: int
    sgpr_spills: int
    scratch_bytes: int
    lds_bytes: int
    dynamic_lds_bytes: int
    wavefront: int
    num_warps: int
    threads: int
    occupancy: int


@dataclass(frozen=True, kw_only=True)
class KernelArgument:
    """One argument in the code object's metadata: offset in the kernarg segment and size in bytes, and its kind."""

    offset: int
    size: int
    kind: str


def kernarg_layout(types: Iterable[str]) -> tuple[KernelArgument, ...]:
    """The kernarg segment of parameters with these types (`ValueType`): in order, naturally aligned."""
    arguments = []
    offset = 0
    for kind in types:
        size = _SIZES[kind]
        offset = -(-offset // size) * size
        arguments.append(
            KernelArgument(offset=offset, size=size, kind="global_buffer" if kind == "ptr" else "by_value")
        )
        offset += size
    return tuple(arguments)


@dataclass(frozen=True, kw_only=True)
class KernelImage:
    """A compiled kernel. `digest` is the SHA-256 of `hsaco`; `symbol` the kernel's name in it.

    `arguments` are the plan's parameters in order, then Triton's two scratch pointers, which are null here.
    """

    key: JobKey
    digest: str
    symbol: str
    hsaco: bytes
    asm: str
    resources: Resources
    arguments: tuple[KernelArgument, ...]


EventKind = Literal["scanned", "compiled", "shared", "damaged", "retry", "failed", "spills"]


@dataclass(frozen=True, kw_only=True)
class CompileEvent:
    """An event of a build.

    `scanned`: the cache has been read (label ''); `compiled` here, or `shared` by another build; `damaged`: the cache entry,
    which is compiled again; `retry` and `failed`: `detail` is the reason; `spills`: `detail` is the number of registers.
    `done` of `total` jobs are finished; `seconds` is the job's wall time, `peak_bytes` its worker's peak memory.
    """

    kind: EventKind
    key: JobKey
    label: str
    detail: str
    done: int
    total: int
    seconds: float = 0.0
    peak_bytes: int = 0


OnEvent = Callable[[CompileEvent], None]
