"""Estimates of settings on the workers of a Dask cluster, which compile and measure them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from aotforge.base.object_cache import DamagedObjectError
from aotforge.base.source_groups import ROOT
from aotforge.compile.cache import Cache
from aotforge.compile.pool import WorkerLimits
from aotforge.devtools.cost.candidates import Candidate, CostRequest, find_candidates
from aotforge.devtools.tune.search import EstimateStore, TunedCost, estimated, model_digest
from aotforge.errors import ToolchainError
from aotforge.pipeline.cluster.cluster import Cluster
from aotforge.pipeline.cluster.messages import Order, Reference, Result, Session
from aotforge.pipeline.cluster.worker import JOBS, TOOLS, run_order
from vgpu.cache import default_cache

_KIND = "estimate"
_SECONDS = 1800.0
"""Longest time of one setting."""


@dataclass(kw_only=True)
class ClusterEstimates:
    """Fills a store with estimates that workers of `cluster` make; `note` receives what is sent again."""

    cluster: Cluster
    note: Callable[[str], None]
    together: int = 64
    _store: EstimateStore | None = None
    _calls: Sequence[CostRequest] = ()

    def fill(self, calls: Sequence[CostRequest], found: Sequence[Candidate], store: EstimateStore) -> None:
        """Estimates of these candidates on these calls. Raises ClusterError, CacheError."""
        self._store, self._calls = store, calls
        session = self.cluster.session(found[0].plan.toolchain, WorkerLimits(), verify_seconds=0.0)
        reference = self.cluster.put(session.encode())
        queue = self.cluster.queue(session, reference, _SECONDS)
        queue.function = run_estimate
        queue.run([self._order(one, reference) for one in found], self)

    def _order(self, one: Candidate, session: Reference) -> Order:
        call = self._calls[0]
        body = {
            "kernel": call.images[0],
            "arch": call.arch,
            "keys": dict(call.keys),
            "setting": dict(one.setting),
            "shapes": [dict(each.shape) for each in self._calls],
            "model": model_digest(),
        }
        return Order(
            kind=_KIND, key=one.job.key, label=one.name, place=self.cluster.place, session=session, body=body
        )

    def done(self, order: Order, result: Result, data: bytes) -> None:
        """Stores the estimates of one setting. Raises DamagedObjectError."""
        assert self._store is not None
        try:
            costs = [TunedCost(**one) for one in json.loads(data)]
        except (ValueError, TypeError) as error:
            raise DamagedObjectError(str(error)) from error
        for call, cost in zip(self._calls, costs, strict=True):
            self._store.put(order.key, call, cost)

    def failed(self, order: Order, result: Result) -> bool:
        """No job of this kind fails: a setting that does not compile has an estimate with the reason."""
        return True

    def lost(self, order: Order, reason: str) -> None:
        """Reports that a setting is sent again."""
        self.note(f"{order.label} is estimated again: {reason}")


def run_estimate(text: str) -> str:
    """`run_order` on a worker, which knows the kind of job when it has imported this module."""
    return run_order(text)


def _estimate(order: Order, session: Session) -> tuple[bytes, Result]:
    if order.body["model"] != model_digest():
        raise ToolchainError("its checkout has other sources of: cost model")
    request = CostRequest(
        root=ROOT,
        cache=default_cache(),
        images=(order.body["kernel"],),
        arch=order.body["arch"],
        keys=order.body["keys"],
        shape={},
        settings=(order.body["setting"],),
    )
    (found,) = find_candidates(request)
    if found.job.key != order.key:
        raise ToolchainError(
            f"this worker's job would be {found.job.key[:12]}, the search has {order.key[:12]}"
        )
    job = replace(found.job, spills="report")
    with Cache(request.cache) as cache:
        if not cache.has(job.key) and not (attempt := TOOLS.compiler(session).compile(job)).failure:
            cache.store(job.key, attempt.data)
    costs = [asdict(estimated(replace(request, shape=shape), found)) for shape in order.body["shapes"]]
    return json.dumps(costs).encode(), Result(state="done", worker="")


JOBS[_KIND] = _estimate
