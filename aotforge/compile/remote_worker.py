"""The compile room in a container: jobs from a file, what happens to them as frames on stdout (`aotforge.compile.wire`).

Started as `python -m aotforge.compile.remote_worker jobs FILE` or `... toolchain PINNED`, with this package and the kernels on the import path and
nothing else of the project. Finished images go out with the news of them and are not stored here.

Frames of `jobs`: {"started": KEY}; {"outcome": KIND, "key", "detail", "seconds", "peak_bytes"} with the encoded entry when KIND is
"compiled"; {"failure": KEY, "reason", "output"}; {"error": CLASS, "what", "cause", "hint"} when all is over for another reason.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from aotforge.compile.cache_entry import Entry
from aotforge.compile.scheduler import Outcome, Scheduler
from aotforge.compile.wire import frame, job_from_wire
from aotforge.compile.worker_limits import Limits, worker_count
from aotforge.errors import AotforgeError
from aotforge.plan.model import JobKey
from aotforge.toolchain.triton import read_toolchain

ALLOCATOR = "allocator.so"
"""The workers' allocator, sent along: a root need not have a C compiler."""


class Outlet:
    """Stands for the cache: what is stored waits for its outcome and goes out with it. Locks are the builder's business."""

    def __init__(self, temporary: Path) -> None:
        self._temporary = temporary
        self.waiting: dict[JobKey, bytes] = {}

    def acquire(self, key: JobKey) -> bool:
        """Always; tells that the job begins."""
        say({"started": key})
        return True

    def release(self, key: JobKey) -> None:
        """Nothing to do."""

    def load(self, key: JobKey) -> Entry | None:
        """The builder has looked."""
        return None

    def store(self, key: JobKey, data: bytes) -> None:
        """Hold until the outcome is told."""
        self.waiting[key] = data

    def temporary(self) -> Path:
        """A folder for workers."""
        return self._temporary


def say(message: dict[str, object], payload: bytes = b"") -> None:
    """One frame on stdout, whole."""
    data = memoryview(frame(message, payload))
    while data:
        data = data[os.write(1, data) :]


def compile_jobs(file: Path) -> None:
    """Every job of the file."""
    order = json.loads(file.read_text(encoding="ascii"))
    jobs = [job_from_wire(tree) for tree in order["jobs"]]
    limits = Limits(**order["limits"])
    outlet = Outlet(Path(tempfile.mkdtemp()))

    def told(outcome: Outcome) -> None:
        payload = outlet.waiting.pop(outcome.job.key, b"") if outcome.kind == "compiled" else b""
        news = {"detail": outcome.detail, "seconds": outcome.seconds, "peak_bytes": outcome.peak_bytes}
        say({"outcome": outcome.kind, "key": outcome.job.key, **news}, payload)

    scheduler = Scheduler(
        jobs,
        cache=outlet,
        allocator=file.parent / ALLOCATOR,
        kernels_root=file.parent / "kernels",
        # what the walls leave: the builder asked for so many, the control group may allow fewer
        count=worker_count(len(jobs), limits, wanted=order["count"]),
        limits=limits,
        report=told,
    )
    scheduler.run()
    for failure in scheduler.failures:
        say({"failure": failure.job.key, "reason": failure.reason, "output": failure.output})


def main(arguments: list[str]) -> int:
    """One verb."""
    verb, argument = arguments
    try:
        if verb == "toolchain":
            say(asdict(read_toolchain(argument)))
        else:
            compile_jobs(Path(argument))
    except AotforgeError as error:
        fields = {"what": error.what, "cause": error.cause, "hint": error.hint}
        say({"error": type(error).__name__, **fields})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
