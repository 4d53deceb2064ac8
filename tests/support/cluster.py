"""Builds on real Dask clusters: processes of this machine, with a folder as the place of the shared cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aotforge.compile.cache import Cache
from aotforge.compile.model import CompileEvent
from aotforge.compile.pool import WorkerLimits
from aotforge.pipeline.cluster.job_queue import JobQueue
from aotforge.pipeline.cluster.messages import Order, Result
from aotforge.pipeline.images import ImageBuilder
from aotforge.pipeline.requests import CachedRequest
from aotforge.pipeline.shared_cache import cluster_of, shared_objects
from aotforge.plan.model import Plan
from aotforge.publish.keys import create_keys
from aotforge.toolchain.triton import Toolchain
from aotforge.verify.verdict import VerifyEvent
from tests.support.families import toolchain
from tests.support.publishing import NOW, ROOT

HOME = Path(os.environ.get("AOTFORGE_HOME") or ROOT / ".aotforge")


@contextmanager
def local_cluster(workers: int = 1) -> Iterator[Any]:
    """A scheduler in this process, and `workers` worker processes with one thread each."""
    import dask
    from distributed import LocalCluster

    # on a busy machine a worker takes longer than 15 s to start again
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address=None,
            worker_dashboard_address=None,
            preload=["tests.support.cluster_jobs"],
            env={"AOTFORGE_CACHE": str(HOME / "cache")},
        ) as cluster,
    ):
        yield cluster


@contextmanager
def started_cluster(folder: Path, workers: int) -> Iterator[str]:
    """A scheduler and `workers` worker processes as a user starts them; the scheduler's address."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "scheduler.json"
    with (
        _started(folder, "scheduler", "--port", "0", "--host", "127.0.0.1") as scheduler,
        started_workers(folder, workers),
    ):
        while not file.exists():
            assert scheduler.poll() is None, (folder / "log").read_text()
            time.sleep(0.05)
        yield str(json.loads(file.read_text())["address"])


@contextmanager
def started_workers(folder: Path, count: int) -> Iterator[None]:
    """`count` worker processes of one thread, for the scheduler of `started_cluster` in `folder`."""
    settings = ("--nthreads", "1", "--nworkers", str(count), "--memory-limit", "0")
    folders = ("--local-directory", str(folder), "--preload", "tests.support.cluster_jobs")
    with _started(folder, "worker", *settings, *folders):
        yield


@contextmanager
def _started(folder: Path, program: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "dask", program, *words, "--no-dashboard"]
    command += ["--scheduler-file", str(folder / "scheduler.json")]
    settings = {"PYTHONPATH": str(ROOT), "AOTFORGE_CACHE": str(HOME / "cache")}
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, env=os.environ | settings, cwd=ROOT, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


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
        "trust_network": True,
        "cache_to": str(folder / "place"),
        "cache_keys": folder / "keys",
        "worker_minutes": 10.0,
    }
    return CachedRequest(**{**fields, **values})


class Results:
    """A destination of results that keeps them; a job that fails is tried `tries` times."""

    def __init__(self, tries: int = 2) -> None:
        self.objects: dict[str, bytes] = {}
        self.failures: list[str] = []
        self.losses: list[str] = []
        self._tries = tries

    def done(self, order: Order, result: Result, data: bytes) -> None:
        assert order.key not in self.objects
        self.objects[order.key] = data

    def failed(self, order: Order, result: Result) -> bool:
        self.failures.append(result.detail)
        return len(self.failures) < self._tries

    def lost(self, order: Order, reason: str) -> None:
        self.losses.append(reason)


@contextmanager
def open_queue(
    request: CachedRequest, notes: list[str], *, compiler: Toolchain | None = None, seconds: float = 60.0
) -> Iterator[tuple[JobQueue, Callable[..., Order]]]:
    """A queue on the request's cluster, and a function that makes its orders."""
    with (
        shared_objects(request, notes.append) as shared,
        cluster_of(request, shared, notes.append) as engine,
    ):
        assert engine is not None
        cluster = engine.cluster
        session = cluster.session(compiler or toolchain(), WorkerLimits(), verify_seconds=seconds)
        reference = cluster.put(session.encode())

        def order(kind: str, key: str, **body: Any) -> Order:
            return Order(
                kind=kind, key=key, label=f"{kind} {key}", place=cluster.place, session=reference, body=body
            )

        yield cluster.queue(session, reference, seconds), order


class Recorder:
    """An observer that keeps what it is given."""

    def __init__(self) -> None:
        self.events: list[CompileEvent] = []
        self.verdicts: list[VerifyEvent] = []
        self.notes: list[str] = []
        self.stages: list[str] = []
        self.event, self.verdict = self.events.append, self.verdicts.append
        self.note, self.stage = self.notes.append, self.stages.append


def build_images(
    request: CachedRequest, plan: Plan, *, verify: bool = True, seen: Recorder | None = None
) -> Recorder:
    """Compile and verify a plan by the request's engine, into its cache folder; `seen` receives the events."""
    seen = seen or Recorder()
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
