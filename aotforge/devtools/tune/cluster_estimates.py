"""Estimates of settings on the workers of a Dask cluster, which compile and measure them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from aotforge.base.source_groups import ROOT
from aotforge.compile.cache import Cache
from aotforge.compile.pool import WorkerLimits
from aotforge.devtools.cost.candidates import Candidate, CostRequest, find_candidates
from aotforge.devtools.tune.search import Estimates, EstimateStore, estimated, model_digest
from aotforge.devtools.tune.tune_report import TunedCost
from aotforge.errors import ToolchainError
from aotforge.pipeline.cluster import Cluster
from aotforge.pipeline.cluster_worker import TOOLS, check_sources
from vgpu.cache import default_cache


@dataclass(kw_only=True)
class ClusterEstimates(Estimates):
    """Estimates that workers of `cluster` make; that of the rules' choice is made here."""

    cluster: Cluster
    together: int = 64

    def fill(self, calls: Sequence[CostRequest], missing: Sequence[Candidate], store: EstimateStore) -> None:
        """Estimates of these candidates on these calls. Raises ClusterError, CacheError."""
        call, shapes = calls[0], [dict(call.shape) for call in calls]
        jobs = {
            candidate.job.key: (
                model_digest(), candidate.job.key, call.images[0], call.arch, call.keys, candidate.setting,
                shapes,
            )
            for candidate in missing
        }  # fmt: skip
        for key, costs in self.cluster.map(estimate_setting, jobs, missing[0].plan.toolchain):
            for each, cost in zip(calls, costs, strict=True):
                store.put(key, [each], cost)


def estimate_setting(
    resource: str,
    model: str,
    key: str,
    kernel: str,
    arch: str,
    keys: Any,
    setting: Any,
    shapes: Sequence[Any],
) -> list[TunedCost]:
    """Estimates of one setting by shape, on a worker. Raises ToolchainError."""
    check_sources(resource)
    if model != model_digest():
        raise ToolchainError("the worker's checkout has another cost model")
    request = CostRequest(
        root=ROOT,
        cache=default_cache(),
        images=(kernel,),
        arch=arch,
        keys=keys,
        shape={},
        settings=(setting,),
    )
    (candidate,) = find_candidates(request)
    if candidate.job.key != key:
        raise ToolchainError(f"the worker's job would be {candidate.job.key[:12]}, the search has {key[:12]}")
    job = replace(candidate.job, spills="report")
    with Cache(request.cache) as cache:
        if not cache.has(key) and not (attempt := TOOLS.compiler(WorkerLimits()).compile(job)).failure:
            cache.store(key, attempt.data)
    return [estimated(replace(request, shape=shape), candidate) for shape in shapes]
