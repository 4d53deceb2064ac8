"""The compiled images of a plan, read from the cache on access; their occupancy, spills and limits."""

from collections.abc import Iterator, Mapping

from aotforge.base.architectures import Architecture
from aotforge.base.object_cache import DamagedObjectError
from aotforge.compile.cache import Cache
from aotforge.compile.cache_entry import Entry, Summary
from aotforge.compile.model import KernelImage, Resources
from aotforge.errors import CacheError
from aotforge.plan.model import CompileJob, JobKey
from aotforge.targets.backend import CodeObjectStats
from aotforge.targets.backends import backend_of


class ImageSet(Mapping[JobKey, KernelImage]):
    """Images by job key in the plan's order, read and verified on each access."""

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
        """The image. Raises as `entry`."""
        return image_of(self.entry(key), self._architectures[self._jobs[key].target.arch])

    def entry(self, key: JobKey) -> Entry:
        """The cache entry. Raises KeyError for jobs of other plans, CacheError when it is gone or damaged."""
        job, summary = self._jobs[key], self._summaries[key]
        reason = "it is gone from the cache"
        try:
            if (entry := self._cache.load(key)) and entry.summary.digest == summary.digest:
                return entry
        except DamagedObjectError as error:
            reason = str(error)
        raise CacheError(f"image of {job.label}: {reason}", hint="build again: it is compiled anew")

    def __iter__(self) -> Iterator[JobKey]:
        return iter(self._jobs)

    def __len__(self) -> int:
        return len(self._jobs)

    def digest(self, key: JobKey) -> str:
        """SHA-256 of the image's bytes, without reading it."""
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
        binary=entry.binary,
        asm=entry.asm(),
        resources=resources(summary.stats, architecture),
        arguments=summary.arguments,
    )


def resources(stats: CodeObjectStats, architecture: Architecture) -> Resources:
    """Complete the stats of a code object with the values that follow from the arch."""
    same = {name: value for name, value in vars(stats).items() if name != "static_shared_bytes"}
    return Resources(
        **same,
        shared_bytes=stats.static_shared_bytes + stats.dynamic_shared_bytes,
        threads=stats.num_warps * stats.warp_size,
        occupancy=backend_of(architecture.vendor).occupancy(stats, architecture),
    )


def violations(job: CompileJob, found: Resources) -> tuple[str, ...]:
    """Reasons to reject the image: too much shared memory, or spills that the rules refuse."""
    reasons = []
    if found.shared_bytes > job.target.shared_bytes:
        reasons.append(
            f"{found.shared_bytes} bytes of shared memory, "
            f"{job.target.arch} has {job.target.shared_bytes} per workgroup"
        )
    if job.spills == "reject" and (found.spilled_registers or found.scratch_bytes):
        reasons.append(spills(found))
    return tuple(reasons)


def spills(found: Resources) -> str:
    """Spilled registers and where to, or ''; scalar ones without scratch are moves, no memory."""
    if not (found.spilled_registers or found.spilled_scalar_registers or found.scratch_bytes):
        return ""
    if not (found.spilled_registers or found.spilled_scalar_registers):
        return f"uses {found.scratch_bytes} bytes of scratch per lane"
    registers = f"{found.spilled_registers} registers and {found.spilled_scalar_registers} scalar registers"
    where = (
        f"{found.scratch_bytes} bytes of scratch per lane" if found.scratch_bytes else "to lanes of registers"
    )
    return f"spills {registers}, {where}"
