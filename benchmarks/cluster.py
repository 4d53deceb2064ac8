"""Cost of `--engine dask` over the local pool: submission of 10,000 jobs, overhead on jobs of one second, speed-up.

    python -m benchmarks.cluster [submit] [sleep] [workers] [compile]

`submit` plans at least 10,000 images of real archs and sends all of them to a Dask scheduler as jobs that do nothing.
Its time ends when the scheduler has all of them, and then when all objects were collected.
`sleep` runs jobs that sleep for one second in two workers; its peer is the sum of the seconds over two.
`workers` runs such jobs in 1, 2, 4, 8 and 16 workers: sleeping takes no CPU, so jobs per second over workers is what engine and
scheduler allow, also on a machine with fewer CPUs.
`compile` compiles jobs of about a second each by the local pool and by a Dask cluster, with two workers each and in the order local, Dask,
Dask, local; then by one Dask worker. Compared are the seconds per image between the first and the last result, because both start their
compilers in between. Scheduler, workers and build share the CPUs of one machine.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from aotforge.base.architectures import load_architectures
from aotforge.compile.model import CompileEvent
from aotforge.compile.scheduler import cost
from aotforge.pipeline.images import make_plans
from aotforge.pipeline.requests import ImagesRequest
from aotforge.plan.model import Plan
from tests.support.cluster import (
    Recorder,
    Results,
    build_images,
    open_queue,
    request_of,
    started_cluster,
    started_workers,
)

ROOT = Path(__file__).parents[1]
JOBS = 10_000
TARGET_SUBMIT, TARGET_OVERHEAD, TARGET_SPEEDUP = 10.0, 1.03, 1.9
SECOND = 37_000.0
"""Cost of a job (`compile.scheduler.cost`) that took about a second on 2026-11-20 (docs/ci.md)."""

SLEEPS, COMPILED = 30, 40
WORKERS, ROUNDS = (1, 2, 4, 8, 16), 3
"""Numbers of workers, and the jobs of one second that each of them runs."""


def present(dask_scheduler: Any) -> int:
    """Jobs that the scheduler has."""
    return sum(str(key).startswith("sleep-") for key in dask_scheduler.tasks)


def plans(archs: tuple[str, ...]) -> tuple[Plan, ...]:
    return make_plans(ImagesRequest(root=ROOT, archs=archs, profile="full", cache=Path("/nonexistent")))


def submit(folder: Path) -> None:
    known = [a for a in load_architectures(ROOT / "manifests").architectures if a.startswith("gfx")]
    began = time.monotonic()
    jobs = [job for plan in plans(tuple(known[:8])) for job in plan.jobs][:JOBS]
    planned = time.monotonic() - began
    with (
        started_cluster(folder / "dask", 2) as address,
        open_queue(request_of(folder, address), []) as opened,
    ):
        queue, order = opened
        queue.run([order("sleep", "warm")], Results())  # workers are admitted
        results = Results()
        received: list[float] = []

        def watch() -> None:
            while not received:
                if len(results.objects) + queue.client.run_on_scheduler(present) >= len(jobs):
                    received.append(time.monotonic())
                time.sleep(0.2)

        watcher = threading.Thread(target=watch)
        began = time.monotonic()
        watcher.start()
        orders = [
            replace(order("sleep", job.key), body={k: v for k, v in vars(job).items() if k != "toolchain"})
            for job in jobs
        ]
        queue.ahead = JOBS
        queue.run(orders, results)
        ended = time.monotonic()
        watcher.join()
    sent = received[0] - began
    assert len(results.objects) == len(jobs)
    print(f"plan of {len(jobs)} jobs          {planned:.2f} s")
    print(
        f"encoded and received         {sent:.2f} s; both {planned + sent:.2f} s (target at most {TARGET_SUBMIT})"
    )
    print(
        f"run and collected            {ended - began:.1f} s: {(ended - began) / len(jobs) * 1e3:.2f} ms per empty job"
    )


def sleep(folder: Path) -> None:
    with (
        started_cluster(folder / "dask", 2) as address,
        open_queue(request_of(folder, address), []) as opened,
    ):
        queue, order = opened
        queue.run([order("sleep", f"warm{n}") for n in range(4)], Results())
        began = time.monotonic()
        queue.run([order("sleep", f"s{n}", seconds=1.0) for n in range(SLEEPS)], Results())
        ratio = (time.monotonic() - began) / (SLEEPS / 2)
    print(f"jobs that sleep for 1 s      {ratio:.3f} x (target at most {TARGET_OVERHEAD})")


def workers(folder: Path) -> None:
    with (
        started_cluster(folder / "dask", WORKERS[0]) as address,
        open_queue(request_of(folder, address), []) as opened,
        ExitStack() as stack,
    ):
        queue, order = opened
        for before, count in pairwise((WORKERS[0], *WORKERS)):
            if count > before:
                stack.enter_context(started_workers(folder / "dask", count - before))
            while queue.roster.slots < count:  # only admitted workers run jobs
                queue.roster.update()
                time.sleep(0.1)
            queue.run([order("sleep", f"warm{count}-{n}", seconds=0.2) for n in range(2 * count)], Results())
            jobs = [order("sleep", f"w{count}-{n}", seconds=1.0) for n in range(ROUNDS * count)]
            began = time.monotonic()
            queue.run(jobs, Results())
            rate = len(jobs) / (time.monotonic() - began)
            print(
                f"{count:2} workers, jobs of 1 s       {rate:.2f} jobs per second: {rate / count:.3f} x workers"
            )


class Timed(Recorder):
    """Notes when images are compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []
        self.event = self._on_event

    def _on_event(self, event: CompileEvent) -> None:
        if event.kind == "compiled":
            self.times.append(time.monotonic())

    @property
    def seconds(self) -> float:
        """Per image, between the first and the last."""
        return (self.times[-1] - self.times[0]) / (len(self.times) - 1)


def compile_(folder: Path) -> None:
    (plan,) = plans(("gfx908",))
    near = sorted(plan.jobs, key=lambda job: abs(cost(job) - SECOND))[:COMPILED]
    part = replace(plan, jobs=tuple(near))
    found: dict[str, list[float]] = {"local": [], "dask": []}
    runs = 0

    def run(engine: str, address: str) -> float:
        nonlocal runs
        runs += 1
        seen = Timed()
        request = request_of(
            folder / str(runs),
            address,
            engine=engine,
            cache_to=str(folder / str(runs) / "place") if engine == "dask" else None,
            jobs=2,
        )
        build_images(request, part, verify=False, seen=seen)
        return seen.seconds

    with started_cluster(folder / "dask", 2) as two:
        for engine in ("local", "dask", "dask", "local"):
            found[engine].append(run(engine, two))
    with started_cluster(folder / "dask1", 1) as single:
        one = run("dask", single)
    local, dask = (statistics.mean(found[name]) for name in ("local", "dask"))
    print(f"s per image, local pool      {local:.3f} ({', '.join(f'{s:.3f}' for s in found['local'])})")
    print(
        f"s per image, Dask            {dask:.3f} ({', '.join(f'{s:.3f}' for s in found['dask'])}): "
        f"{dask / local:.3f} x (target at most {TARGET_OVERHEAD})"
    )
    print(
        f"s per image, one Dask worker {one:.3f}: two are {one / dask:.2f} x as fast (target at least {TARGET_SPEEDUP})"
    )


PARTS: dict[str, Callable[[Path], None]] = {
    "submit": submit,
    "sleep": sleep,
    "workers": workers,
    "compile": compile_,
}


def main() -> None:
    print(f"load                         {os.getloadavg()[0]:.1f}")
    for name in sys.argv[1:] or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            PARTS[name](Path(folder))


if __name__ == "__main__":
    main()
