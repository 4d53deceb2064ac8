"""Waves of AMD's archs that fit a SIMD: registers, LDS and wave limits together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotforge.targets.backend import CodeObjectStats, allocated

if TYPE_CHECKING:
    from aotforge.base.architectures import AmdArchitecture


def register_waves(stats: CodeObjectStats, architecture: AmdArchitecture) -> int:
    """Waves per SIMD that the register files and wave slots allow.

    Files and granules: LLVM's AMDGPU target (`AMDGPUBaseInfo`, occupancy from register counts). With `split`
    accumulators AGPRs have a file of their own as large as the VGPRs'; with `unified` ones `.vgpr_count`
    already holds both.
    """
    vectors = (
        max(stats.registers, stats.accumulation_registers)
        if architecture.accumulators == "split"
        else stats.registers
    )
    waves = [
        architecture.max_waves_per_simd,
        architecture.vgprs // allocated(vectors, architecture.vgpr_granule),
    ]
    if architecture.sgprs:
        scalars = allocated(stats.scalar_registers + architecture.sgprs_reserved, architecture.sgpr_granule)
        waves.append(architecture.sgprs // scalars)
    return min(waves)


def occupancy(stats: CodeObjectStats, architecture: AmdArchitecture) -> int:
    """Waves per SIMD when only this kernel runs: complete workgroups that fit a compute unit, spread over its
    SIMDs."""
    groups = resident_workgroups(stats, architecture)
    if groups == 0:
        return 0
    return max(1, groups * stats.num_warps // architecture.simds_per_cu)


def resident_workgroups(stats: CodeObjectStats, architecture: AmdArchitecture) -> int:
    """Workgroups that a compute unit has at once when only this kernel runs; 0 where one does not fit."""
    slots = register_waves(stats, architecture) * architecture.simds_per_cu
    groups = slots // stats.num_warps
    lds = stats.static_shared_bytes + stats.dynamic_shared_bytes
    if lds:
        groups = min(groups, architecture.lds_per_cu // allocated(lds, architecture.lds_granule))
    if stats.num_warps > 1:
        groups = min(groups, architecture.max_workgroups_per_cu)
    return groups
