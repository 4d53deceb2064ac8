"""Shared caches and cluster of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from aotforge.base.object_cache import NOT_SHARED, SharedObjects
from aotforge.errors import UnsupportedError
from aotforge.pipeline.requests import CachedRequest

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
