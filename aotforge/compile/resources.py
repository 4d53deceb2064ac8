"""Resources of an image on its chip: occupancy from registers, LDS and wave slots together; violations of limits."""

from __future__ import annotations

from aotforge.base.architectures import Architecture
from aotforge.compile.cache_entry import CodeObjectStats
from aotforge.compile.model import Resources
from aotforge.plan.model import CompileJob


def resources(stats: CodeObjectStats, chip: Architecture) -> Resources:
    """Complete the stats of a code object with what follows from the chip."""
    return Resources(
        vgpr=stats.vgpr,
        agpr=stats.agpr,
        sgpr=stats.sgpr,
        vgpr_spills=stats.vgpr_spills,
        sgpr_spills=stats.sgpr_spills,
        scratch_bytes=stats.scratch_bytes,
        lds_bytes=stats.static_lds_bytes + stats.dynamic_lds_bytes,
        dynamic_lds_bytes=stats.dynamic_lds_bytes,
        wavefront=stats.wavefront,
        num_warps=stats.num_warps,
        threads=stats.num_warps * stats.wavefront,
        occupancy=occupancy(stats, chip),
    )


def register_waves(stats: CodeObjectStats, chip: Architecture) -> int:
    """Waves per SIMD that the register files and wave slots allow.

    Files and granules: LLVM's AMDGPU target (`AMDGPUBaseInfo`, occupancy from register counts). On `split` chips AGPRs have a file
    of their own as large as the VGPRs'; on `unified` ones `.vgpr_count` already holds both.
    """
    vectors = max(stats.vgpr, stats.agpr) if chip.accumulators == "split" else stats.vgpr
    waves = min(chip.max_waves_per_simd, chip.vgprs // _allocated(vectors, chip.vgpr_granule))
    if chip.sgprs:
        waves = min(waves, chip.sgprs // _allocated(stats.sgpr + chip.sgprs_reserved, chip.sgpr_granule))
    return waves


def occupancy(stats: CodeObjectStats, chip: Architecture) -> int:
    """Waves per SIMD when only this kernel runs: whole workgroups that fit a compute unit, spread over its SIMDs."""
    slots = register_waves(stats, chip) * chip.simds_per_cu
    groups = slots // stats.num_warps
    lds = stats.static_lds_bytes + stats.dynamic_lds_bytes
    if lds:
        groups = min(groups, chip.lds_per_cu // _allocated(lds, chip.lds_granule))
    if stats.num_warps > 1:
        groups = min(groups, chip.max_workgroups_per_cu)
    if groups == 0:
        return 0
    return max(1, groups * stats.num_warps // chip.simds_per_cu)


def violations(job: CompileJob, found: Resources) -> tuple[str, ...]:
    """Why the image must be rejected: more LDS than its chip has, or spills to memory where the rules refuse them."""
    reasons = []
    if found.lds_bytes > job.target.lds_bytes:
        reasons.append(
            f"{found.lds_bytes} bytes of LDS, {job.target.arch} has {job.target.lds_bytes} per workgroup"
        )
    if job.spills == "reject" and (found.vgpr_spills or found.scratch_bytes):
        reasons.append(spills(found))
    return tuple(reasons)


def spills(found: Resources) -> str:
    """What is spilt and where to, or ''. SGPRs without scratch go to lanes of VGPRs: that costs moves, no memory."""
    if not (found.vgpr_spills or found.sgpr_spills or found.scratch_bytes):
        return ""
    registers = f"{found.vgpr_spills} VGPRs and {found.sgpr_spills} SGPRs"
    where = f"{found.scratch_bytes} bytes of scratch per lane" if found.scratch_bytes else "to VGPR lanes"
    return f"spills {registers}, {where}"


def _allocated(count: int, granule: int) -> int:
    return max(granule, (count + granule - 1) // granule * granule)
