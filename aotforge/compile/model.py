"""Values of the compile stage: an image with its resources and arguments, and the events of a build."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from aotforge.plan.model import JobKey
from aotforge.targets.backend import KernelArgument


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resource use of one image on its arch, from the code object's metadata and Triton's.

    Registers per lane (`scalar_registers` per warp), 0 of a kind that the arch lacks; `scratch_bytes` per
    lane, `shared_bytes` per workgroup (static and dynamic together), `dynamic_shared_bytes` to be passed at
    launch, `occupancy` in warps per scheduler (registers, shared memory and limits of warps together).
    """

    registers: int
    accumulation_registers: int
    scalar_registers: int
    spilled_registers: int
    spilled_scalar_registers: int
    scratch_bytes: int
    shared_bytes: int
    dynamic_shared_bytes: int
    warp_size: int
    num_warps: int
    threads: int
    occupancy: int


@dataclass(frozen=True, kw_only=True)
class KernelImage:
    """A compiled kernel. `digest` is the SHA-256 of `binary`; `symbol` the kernel's name in it.

    `arguments` are the plan's parameters in order, then Triton's two scratch pointers, which are null here.
    """

    key: JobKey
    digest: str
    symbol: str
    binary: bytes
    asm: str
    resources: Resources
    arguments: tuple[KernelArgument, ...]


EventKind = Literal["scanned", "compiled", "shared", "damaged", "retry", "failed", "spills"]


@dataclass(frozen=True, kw_only=True)
class CompileEvent:
    """An event of a build.

    `scanned`: the cache has been read (label ''); `compiled` here, or `shared` by another build; `damaged`:
    the cache entry, which is compiled again; `retry` and `failed`: `detail` is the reason; `spills`: `detail`
    is the number of registers.
    `done` of `total` jobs are finished; `seconds` is the job's wall time, `peak_bytes` its worker's peak
    memory.
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
