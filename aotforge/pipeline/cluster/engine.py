"""The engine `dask`: compiles and verifies the images of a plan on a Dask cluster."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotforge.base.architectures import Architectures
from aotforge.base.object_cache import SharedObjects
from aotforge.compile.image_set import ImageSet
from aotforge.compile.scheduler import CompileSettings
from aotforge.errors import ToolchainError, UnsupportedError
from aotforge.pipeline.cluster.cluster import Cluster, check_encrypted
from aotforge.pipeline.cluster.compile_jobs import ClusterScheduler
from aotforge.pipeline.display import BuildObserver
from aotforge.pipeline.requests import CachedRequest
from aotforge.plan.model import CompileJob, Plan
from aotforge.publish.cache.session import SharedCache

if TYPE_CHECKING:
    from aotforge.verify.report import VerifyReport  # numpy: 80 ms of a no-op build

SCHEDULER_VARIABLE = "AOTFORGE_SCHEDULER"


@contextmanager
def open_cluster(
    request: CachedRequest, shared: SharedObjects, note: Callable[[str], None]
) -> Iterator[ClusterEngine]:
    """The request's cluster. Raises ClusterError, UnsupportedError, ToolchainError without the packages of Dask."""
    address = request.scheduler or request.environment.get(SCHEDULER_VARIABLE)
    if not address:
        raise UnsupportedError(
            "--engine dask needs the address of a scheduler",
            cause=f"neither --scheduler nor {SCHEDULER_VARIABLE} is set",
            hint="--scheduler tls://HOST:8786; docs/scale.md starts one",
        )
    writer = shared.writer if isinstance(shared, SharedCache) else None
    if writer is None:
        raise UnsupportedError(
            "--engine dask needs --cache-to with a place that can be used",
            cause="images and verdicts come from the workers through a shared cache",
            hint="--cache-to s3://BUCKET/PREFIX, or a folder that this machine and all workers have",
        )
    check_encrypted(address, trusted=request.trust_network)
    require_dask()
    cluster = Cluster(address=address, writer=writer, request=request, note=note)
    try:
        yield ClusterEngine(cluster=cluster)
    finally:
        cluster.close()


def require_dask() -> None:
    """Raises ToolchainError without the package."""
    if importlib.util.find_spec("distributed") is None:
        raise ToolchainError(
            "--engine dask needs the Python package distributed",
            cause="it is not part of an environment for builds on one machine",
            hint="./dev build --engine dask installs it; in another environment: "
            "pip install --only-binary :all: --require-hashes -r requirements/dask.txt",
        )


@dataclass(frozen=True, kw_only=True)
class ClusterEngine:
    """What `ImageBuilder` uses of a cluster."""

    cluster: Cluster

    def scheduler(self, jobs: Sequence[CompileJob], settings: CompileSettings) -> ClusterScheduler:
        """For `compile_plan`."""
        return ClusterScheduler(jobs=list(jobs), settings=settings, cluster=self.cluster)

    def verify(
        self,
        plan: Plan,
        images: ImageSet,
        *,
        architectures: Architectures,
        observer: BuildObserver,
        device: bool = False,
    ) -> VerifyReport:
        """A verdict on every image, as `verify_images`. Raises ClusterError, and what that raises."""
        from aotforge.pipeline.cluster.verify_jobs import ClusterVerifier  # noqa: PLC0415 - the emulator: 60 ms of a no-op build

        verifier = ClusterVerifier(
            cluster=self.cluster,
            plan=plan,
            images=images,
            architectures=architectures,
            observer=observer,
            device=device,
        )
        return verifier.verify()
