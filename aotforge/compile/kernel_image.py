"""Values of the compile room: an image, its resources, and where each came from."""

from __future__ import annotations

from dataclasses import dataclass

from aotforge.plan.model import JobKey


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What one image asks of its chip, from the code object's metadata and Triton's.

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
    """One argument as the code object's metadata describes it: bytes from the start of the kernarg segment, size, kind."""

    offset: int
    size: int
    kind: str


@dataclass(frozen=True, kw_only=True)
class KernelImage:
    """A compiled kernel. `digest` is the SHA-256 of `hsaco`; `symbol` the kernel's name in it.

    `arguments` are those of the code object: the plan's parameters in order, then two scratch pointers of Triton's that are
    null here.
    """

    key: JobKey
    digest: str
    symbol: str
    hsaco: bytes
    asm: str
    resources: Resources
    arguments: tuple[KernelArgument, ...]
