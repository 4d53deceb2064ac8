"""The compiled images of a plan, read from the cache on access; their occupancy, spills and limits."""

from collections.abc import Iterator, Mapping

from aotforge.base.architectures import Architecture
from aotforge.compile.cache import Cache
from aotforge.compile.cache_entry import CodeObjectStats, Entry, EntryError, Summary
from aotforge.compile.model import KernelImage, Resources
from aotforge.errors import CacheError
from aotforge.plan.model import CompileJob, JobKey


class ImageSet(Mapping[JobKey, KernelImage]):
    """Images by job key, in the plan's order. Each access reads and verifies the cache entry; only summaries are kept in memory."""

    def __init__(
        self,
        jobs: tuple[CompileJob, ...],
        summaries: Mapping[JobKey, Summary],
        architectures: Mapping[str, Architecture],
        cache: Cache,
    ) -> None:
        self._jobs = {job.key: job for job in jobs}
        self._summaries = summaries
        self._architectures = architectures
        self._cache = cache

    def __getitem__(self, key: JobKey) -> KernelImage:
        """The image. Raises KeyError for jobs of other plans, CacheError when its entry is gone or damaged since the build."""
        job, summary = self._jobs[key], self._summaries[key]
        try:
            entry = self._cache.load(key)
        except EntryError as error:
            raise CacheError(
                f"image of {job.label}: {error}", hint="build again: it is compiled anew"
            ) from error
        if entry is None or entry.summary.digest != summary.digest:
            raise CacheError(
                f"image of {job.label} is gone from the cache", hint="build again: it is compiled anew"
            )
        return image_of(entry, self._architectures[job.target.arch])

    def __iter__(self) -> Iterator[JobKey]:
        return iter(self._jobs)

    def __len__(self) -> int:
        return len(self._jobs)

    def digest(self, key: JobKey) -> str:
        """SHA-256 of the image's HSACO, without reading it."""
        return self._summaries[key].digest

    def resources(self, key: JobKey) -> Resources:
        """The image's resources, without reading it."""
        return resources(self._summaries[key].stats, self._architectures[self._jobs[key].target.arch])


def image_of(entry: Entry, architecture: Architecture) -> KernelImage:
    """The image of a cache entry."""
    summary = entry.summary
    return KernelImage(
        key=summary.key,
        digest=summary.digest,
        symbol=summary.symbol,
        hsaco=entry.hsaco,
        asm=entry.asm(),
        resources=resources(summary.stats, architecture),
        arguments=summary.arguments,
    )


def resources(stats: CodeObjectStats, architecture: Architecture) -> Resources:
    """Complete the stats of a code object with the values that follow from the arch."""
    same = {name: value for name, value in vars(stats).items() if name != "static_lds_bytes"}
    return Resources(
        **same,
        lds_bytes=stats.static_lds_bytes + stats.dynamic_lds_bytes,
        threads=stats.num_warps * stats.wavefront,
        occupancy=occupancy(stats, architecture),
    )


def register_waves(stats: CodeObjectStats, architecture: Architecture) -> int:
    """Waves per SIMD that the register files and wave slots allow.

    Files and granules: LLVM's AMDGPU target (`AMDGPUBaseInfo`, occupancy from register counts). With `split` accumulators AGPRs have a file
    of their own as large as the VGPRs'; with `unified` ones `.vgpr_count` already holds both.
    """
    vectors = max(stats.vgpr, stats.agpr) if architecture.accumulators == "split" else stats.vgpr
    waves = [
        architecture.max_waves_per_simd,
        architecture.vgprs // _allocated(vectors, architecture.vgpr_granule),
    ]
    if architecture.sgprs:
        scalars = _allocated(stats.sgpr + architecture.sgprs_reserved, architecture.sgpr_granule)
        waves.append(architecture.sgprs // scalars)
    return min(waves)


def occupancy(stats: CodeObjectStats, architecture: Architecture) -> int:
    """Waves per SIMD when only this kernel runs: complete workgroups that fit a compute unit, spread over its SIMDs."""
    slots = register_waves(stats, architecture) * architecture.simds_per_cu
    groups = slots // stats.num_warps
    lds = stats.static_lds_bytes + stats.dynamic_lds_bytes
    if lds:
        groups = min(groups, architecture.lds_per_cu // _allocated(lds, architecture.lds_granule))
    if stats.num_warps > 1:
        groups = min(groups, architecture.max_workgroups_per_cu)
    if groups == 0:
        return 0
    return max(1, groups * stats.num_warps // architecture.simds_per_cu)


def violations(job: CompileJob, found: Resources) -> tuple[str, ...]:
    """Why the image must be rejected: more LDS than its arch has, or spills to memory where the rules refuse them."""
    reasons = []
    if found.lds_bytes > job.target.lds_bytes:
        reasons.append(
            f"{found.lds_bytes} bytes of LDS, {job.target.arch} has {job.target.lds_bytes} per workgroup"
        )
    if job.spills == "reject" and (found.vgpr_spills or found.scratch_bytes):
        reasons.append(spills(found))
    return tuple(reasons)


def spills(found: Resources) -> str:
    """Spilled registers and their destination, or ''. SGPRs without scratch go to lanes of VGPRs, which costs moves, no memory."""
    if not (found.vgpr_spills or found.sgpr_spills or found.scratch_bytes):
        return ""
    registers = f"{found.vgpr_spills} VGPRs and {found.sgpr_spills} SGPRs"
    where = f"{found.scratch_bytes} bytes of scratch per lane" if found.scratch_bytes else "to VGPR lanes"
    return f"spills {registers}, {where}"


def _allocated(count: int, granule: int) -> int:
    return max(granule, (count + granule - 1) // granule * granule)
