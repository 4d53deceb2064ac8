"""Shared caches and cluster of a request; verdicts that come from shared caches and go to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aotforge.base.files import write_atomic
from aotforge.base.object_cache import NOT_SHARED, SharedObjects
from aotforge.compile.model import KernelImage
from aotforge.errors import UnsupportedError
from aotforge.pipeline.requests import CachedRequest
from aotforge.plan.model import JobKey, Plan

FROM_VARIABLE = "AOTFORGE_CACHE_FROM"

if TYPE_CHECKING:
    from aotforge.pipeline.cluster import Cluster


@contextmanager
def shared_objects(request: CachedRequest, note: Callable[[str], None]) -> Iterator[SharedObjects]:
    """The shared places that a request names; none by default. `note` receives their faults and statistics.

    Raises PublishError without the keys of the place to write to, TrustError without a valid root of trust.
    """
    source = request.cache_from or request.environment.get(FROM_VARIABLE)
    target = request.cache_to
    if request.cache_limit < 0:
        raise UnsupportedError(
            f"cache-limit = {request.cache_limit:g} is not a valid size", hint="cache-limit = 20, in GiB"
        )
    if not source and not target:
        yield NOT_SHARED
        return
    # TUF and its cryptography take 0.2 s of a no-op build
    from aotforge.publish.shared_cache import open_shared_cache  # noqa: PLC0415 - as above

    with open_shared_cache(
        note,
        source=source,
        target=target,
        root=str(request.cache_root) if request.cache_root else None,
        keys=request.cache_keys,
        limit=int(request.cache_limit * 2**30),
    ) as shared:
        yield shared


@contextmanager
def cluster_of(request: CachedRequest, note: Callable[[str], None]) -> Iterator[Cluster | None]:
    """The request's cluster, None for this machine. Raises ToolchainError without Dask."""
    if not request.scheduler:
        yield None
        return
    from aotforge.pipeline.cluster import Cluster  # noqa: PLC0415 - not for builds on one machine

    with closing(Cluster(address=request.scheduler, request=request, note=note)) as cluster:
        yield cluster


class SharedVerdicts:
    """Verdicts on a plan's images, between the cache folder and shared places."""

    def __init__(
        self,
        plan: Plan,
        images: Mapping[JobKey, KernelImage],
        *,
        kernels: Path,
        cache: Path,
        shared: SharedObjects,
    ) -> None:
        from aotforge.verify.verdict_store import VERSION, verdict_key  # noqa: PLC0415 - numpy: 80 ms
        from aotforge.verify.verify_plan import image_tasks  # noqa: PLC0415 - the emulator: 60 ms

        self._tasks = {verdict_key(task): task for task in image_tasks(plan, images, kernels)}
        self._cache, self._shared = cache, shared
        self._kind = f"verdicts-{VERSION}"

    def fetch(self) -> None:
        """Puts verdicts that the folder lacks into it. Raises CacheError, OutputError."""
        from aotforge.verify.verdict_store import load_verdict  # noqa: PLC0415 - as above

        missing = {key: task for key, task in self._tasks.items() if not self._path(key).is_file()}
        self._shared.expect(self._kind, missing)
        for key, task in missing.items():
            if (data := self._shared.load(self._kind, key)) is None:
                continue
            write_atomic(self._path(key), data)
            try:
                intact = load_verdict(self._cache, key, task) is not None
            except (ValueError, KeyError, TypeError):
                intact = False
            if not intact:
                self._path(key).unlink(missing_ok=True)
                self._shared.reject(self._kind, key, "is not an intact verdict")

    def offer(self) -> None:
        """Offers the folder's verdicts."""
        for key in self._tasks:
            with suppress(OSError):
                self._shared.offer(self._kind, key, self._path(key).read_bytes())

    def _path(self, key: str) -> Path:
        return self._cache / self._kind / key[:2] / key
