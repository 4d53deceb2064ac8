"""Builds on real Dask clusters: processes of this machine, with a folder as the place of the shared cache."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aotforge.compile.cache import Cache
from aotforge.compile.model import CompileEvent
from aotforge.pipeline.images import ImageBuilder
from aotforge.pipeline.requests import CachedRequest
from aotforge.pipeline.shared_cache import cluster_of, shared_objects
from aotforge.plan.model import Plan
from aotforge.publish.keys import create_keys
from aotforge.verify.verdict import VerifyEvent
from tests.support.publishing import NOW, ROOT

HOME = Path(os.environ.get("AOTFORGE_HOME") or ROOT / ".aotforge")


@contextmanager
def local_cluster(workers: int = 1) -> Iterator[Any]:
    """A scheduler in this process, and `workers` worker processes with one thread each."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        memory_limit=0,
        dashboard_address=None,
        worker_dashboard_address=None,
    ) as cluster:
        yield cluster


def request_of(folder: Path, scheduler: str, **values: Any) -> CachedRequest:
    """A build's request with a new place and keys below `folder`."""
    if not (folder / "keys").exists():
        create_keys(folder / "keys", now=NOW, repository=ROOT, root_keys=1, threshold=1)
    fields: dict[str, Any] = {
        "root": ROOT,
        "archs": ("gfx908",),
        "cache": folder / "cache",
        "engine": "dask",
        "scheduler": scheduler,
        "cache_to": str(folder / "place"),
        "cache_keys": folder / "keys",
        "worker_minutes": 1.0,
    }
    return CachedRequest(**{**fields, **values})


class Recorder:
    """An observer that keeps what it is given."""

    def __init__(self) -> None:
        self.events: list[CompileEvent] = []
        self.verdicts: list[VerifyEvent] = []
        self.notes: list[str] = []
        self.stages: list[str] = []
        self.event, self.verdict = self.events.append, self.verdicts.append
        self.note, self.stage = self.notes.append, self.stages.append


def build_images(request: CachedRequest, plan: Plan, *, verify: bool = True) -> Recorder:
    """Compile and verify a plan by the request's engine, into its cache folder."""
    seen = Recorder()
    with (
        shared_objects(request, seen.note) as shared,
        Cache(request.cache, shared) as cache,
        cluster_of(request, shared, seen.note) as cluster,
    ):
        builder = ImageBuilder(request=request, observer=seen, shared=shared, cluster=cluster)
        builder.build(plan, cache, verify=verify)
    return seen


def entries(folder: Path) -> dict[str, bytes]:
    """Every image of a cache folder by key, as bytes."""
    return {path.name: path.read_bytes() for path in folder.glob("images-1/??/*")}


def verdicts(folder: Path) -> dict[str, dict[str, Any]]:
    """Every verdict of a cache folder by key, without the time that it took."""
    found = {}
    for path in folder.glob("verdicts-*/??/*"):
        found[path.name] = json.loads(path.read_bytes().partition(b"\n")[2])
        del found[path.name]["seconds"]
    return found
