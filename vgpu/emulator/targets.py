"""Properties of an arch that the emulator uses: a view of manifests/architectures.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from aotforge.errors import UnknownNameError


@dataclass(frozen=True, kw_only=True)
class EmulatedTarget:
    """One arch. Fields have the manifest's names and meanings; `lanes` is its `wavefront`, `lds_bytes` per workgroup."""

    arch: str
    lanes: int
    lds_bytes: int
    accumulators: Literal["split", "unified", "none"]
    keeps_high_half: bool
    vgpr_unit: int
    packed_ids: bool
    ids_in_ttmp: bool
    scratch_offset: bool

    @property
    def generation(self) -> int:
        """Major version of the instruction set: 9 for gfx90a, 11 for gfx1100."""
        return int(self.arch[3:-2])

    @property
    def resource_rules(self) -> int:
        """How word 3 of a buffer resource is read (memory.h): as gfx9's (0), gfx10's (1), or that of gfx11 and later (2)."""
        return min(self.generation, 11) - 9


@cache
def emulated_targets() -> Mapping[str, EmulatedTarget]:
    """Every emulated arch by name. Raises ManifestError."""
    # loading a prepared program in a virtual HIP process needs no target
    from aotforge.base.architectures import load_architectures  # noqa: PLC0415 - pydantic and PyYAML: 130 ms

    return {
        arch: EmulatedTarget(
            arch=arch,
            lanes=row.wavefront,
            lds_bytes=row.lds_bytes,
            accumulators=row.accumulators,
            **row.emulator.model_dump(),
        )
        for arch, row in load_architectures().amd.items()
        if row.emulator is not None
    }


def emulated_target(arch: str) -> EmulatedTarget:
    """The target of an arch. Raises UnknownNameError."""
    known = emulated_targets()
    if arch not in known:
        raise UnknownNameError(
            f"the emulator does not support the arch {arch}", hint=f"known archs: {', '.join(known)}"
        )
    return known[arch]
