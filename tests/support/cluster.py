"""A real Dask cluster of this machine's processes, and jobs for it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.families import PROJECT

HOME = Path(os.environ.get("AOTFORGE_HOME") or PROJECT / ".aotforge")


@contextmanager
def local_cluster(workers: int = 2, *, preload: str = "aotforge.pipeline.cluster_worker") -> Iterator[str]:
    """The address of a scheduler with `workers` processes of one thread each."""
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
            preload=[preload],
            env={"AOTFORGE_CACHE": str(HOME / "cache")},
        ) as cluster,
    ):
        yield cluster.scheduler_address


def echo(resource: str, value: str) -> str:
    """A job that does nothing."""
    return value


def crash_once(resource: str, folder: Path, name: str) -> str:
    """A job that ends its worker's process the first time."""
    try:
        (folder / name).mkdir()
    except FileExistsError:
        return name
    os._exit(1)


def fail(resource: str) -> str:
    """A job that no worker can run."""
    raise OSError("no space left on device")


def entries(folder: Path) -> dict[str, bytes]:
    """Every image of a cache folder by key, as bytes."""
    return {path.name: path.read_bytes() for path in folder.glob("images-1/??/*")}


def verdicts(folder: Path) -> dict[str, dict[str, Any]]:
    """Every verdict of a cache folder by key, without the time that it took."""
    by_file = {}
    for path in folder.glob("verdicts-*/??/*"):
        by_file[path.name] = json.loads(path.read_bytes().partition(b"\n")[2])
        del by_file[path.name]["seconds"]
    return by_file
