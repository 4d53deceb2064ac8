"""Jobs of a build on the workers of a Dask cluster, and what a worker is.

`dask worker --preload aotforge.pipeline.cluster_worker` starts a worker of this checkout. It declares its
toolchain and sources as a Dask resource, and the scheduler gives a build's jobs to workers with the same one.
Images and verdicts return to the build; a worker's cache folder (AOTFORGE_CACHE) has compiled helpers only.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotforge.base.files import make_folders, open_lock
from aotforge.base.source_groups import ROOT, files_digest, group_digest
from aotforge.compile.cache import Cache
from aotforge.compile.pool import Attempt, CompileWorkers, WorkerLimits, worker_count
from aotforge.errors import ToolchainError
from aotforge.plan.model import CompileJob, json_digest
from aotforge.toolchain.allocator import build_allocator
from aotforge.toolchain.triton import Toolchain, pinned_triton, read_toolchain
from vgpu.cache import default_cache

if TYPE_CHECKING:
    from aotforge.verify.pool import Pool
    from aotforge.verify.verdict import ImageTask, Verdict  # numpy, which a compiling worker lacks

PREFIX = "aotforge"
Instructions = tuple[tuple[int, tuple[str, ...]], ...]
"""Names of instructions by lanes of a wave: those of all images of a stage, for one interpreter."""


def resource_name(toolchain: Toolchain, root: Path = ROOT) -> str:
    """The Dask resource of workers with this toolchain and the sources in `root`: a digest of each."""
    return f"{PREFIX}-{json_digest(asdict(toolchain))[:12]}-{sources_digest(root)}"


def sources_digest(root: Path = ROOT) -> str:
    """Digest of all sources that decide images, verdicts and messages. Raises ToolchainError."""
    kernels = {path.relative_to(root).as_posix(): path for path in sorted(root.glob("kernels/**/*.py"))}
    groups = [group_digest(name) for name in ("compile worker", "verifier", "cluster")]
    return json_digest({"groups": groups, "kernels": files_digest(kernels), "numpy": version("numpy")})[:12]


async def dask_setup(worker: Any) -> None:
    """Declares the resource, before the worker joins. Dask calls this; raises ToolchainError."""
    build_allocator(default_cache())
    name = resource_name(read_toolchain(pinned_triton(ROOT / "requirements" / "build.in")))
    threads = worker.state.nthreads
    slots = worker_count(threads, WorkerLimits(), wanted=threads)
    worker.state.total_resources[name] = worker.state.available_resources[name] = slots


def compile_job(resource: str, job: CompileJob, limits: WorkerLimits) -> Attempt:
    """An image, tried twice as on one machine. Raises ToolchainError, CacheError."""
    check_sources(resource)
    compiler = TOOLS.compiler(limits)
    attempt = compiler.compile(job)
    return compiler.compile(job) if attempt.failure else attempt


def verify_image(resource: str, task: ImageTask, instructions: Instructions, seconds: float) -> Verdict:
    """The verdict on an image. Raises what `Pool.check` raises."""
    check_sources(resource)
    return TOOLS.verifier(instructions, seconds).check(task)


def check_sources(resource: str) -> None:
    """Raises ToolchainError where files, which jobs read, were replaced after the worker started."""
    if resource.rpartition("-")[2] != sources_digest():
        raise ToolchainError(
            f"the sources in {ROOT} were changed after the worker was started",
            hint="start the worker again",
        )


class _Tools(threading.local):
    """Processes of one thread, kept between jobs; they end with their thread."""

    _compiler: CompileWorkers | None = None
    _verifier: tuple[Any, Pool] | None = None
    _cache: Cache | None = None

    def compiler(self, limits: WorkerLimits) -> CompileWorkers:
        """The compile worker."""
        if self._compiler is None or self._compiler.limits != limits:
            if self._compiler:
                self._compiler.close()
            self._cache = self._cache or Cache(default_cache())
            self._compiler = CompileWorkers(
                kernels_root=ROOT / "kernels",
                allocator=build_allocator(default_cache()),
                temporary=self._cache.temporary(),
                limits=limits,
            )
        return self._compiler

    def verifier(self, instructions: Instructions, seconds: float) -> Pool:
        """The verification worker, with an interpreter for these instructions."""
        from aotforge.verify.pool import Pool  # noqa: PLC0415 - numpy, see above

        wanted = (instructions, seconds)
        if self._verifier is None or self._verifier[0] != wanted:
            if self._verifier:
                self._verifier[1].close()
            pool = Pool(
                kernels_root=ROOT / "kernels",
                cache=default_cache(),
                timeout=seconds,
                libraries=_interpreters(instructions),
            )
            self._verifier = wanted, pool
        return self._verifier[1]


@lru_cache(maxsize=8)
def _interpreters(instructions: Instructions) -> Mapping[int, Path]:
    """One process of this machine compiles them; the others wait. Raises ToolchainError, CacheError."""
    from vgpu.emulator.interpreter_library import build_library  # noqa: PLC0415 - the emulator

    folder = default_cache()
    make_folders(folder)
    with os.fdopen(open_lock(folder / "cluster.lock")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return {lanes: build_library(lanes, folder, "checks", names) for lanes, names in instructions}


TOOLS = _Tools()
