"""The scheduler in a rootfs: jobs from a file, outcomes as lines (`pool.frame`) on stdout.

Started as `python -m aotforge.compile.remote_worker jobs FILE` or `... toolchain PINNED`, with this package
and the kernels on the import path and nothing else of the project. An image is sent with its outcome.
"""

import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from aotforge.compile.cache_entry import Entry
from aotforge.compile.pool import WorkerLimits, frame
from aotforge.compile.scheduler import CompileSettings, Outcome, Scheduler
from aotforge.errors import AotforgeError
from aotforge.plan.model import CompileJob, JobKey, build
from aotforge.toolchain.triton import read_toolchain

ALLOCATOR = "allocator.so"
"""The workers' allocator, sent along: a rootfs need not have a C compiler."""


class StreamingStore:
    """Holds an entry until it is sent with its outcome. The builder holds the locks."""

    def __init__(self) -> None:
        self._temporary = Path(tempfile.mkdtemp())
        self._held: dict[JobKey, bytes] = {}

    def acquire(self, key: JobKey) -> bool:
        """True; reports that the job starts."""
        send({"started": key})
        return True

    def release(self, key: JobKey) -> None:
        """Nothing to do."""

    def load(self, key: JobKey) -> Entry | None:
        """None: the builder has looked in its cache."""
        return None

    def store(self, key: JobKey, data: bytes) -> None:
        """Hold the entry until its outcome is reported."""
        self._held[key] = data

    def temporary(self) -> Path:
        """A folder for workers."""
        return self._temporary

    def report(self, outcome: Outcome) -> None:
        """Send an outcome, with its entry."""
        message = {name: getattr(outcome, name) for name in ("detail", "output", "seconds", "peak_bytes")}
        payload = self._held.pop(outcome.job.key, b"") if outcome.kind == "compiled" else b""
        send({"outcome": outcome.kind, "key": outcome.job.key, **message}, payload)


def send(message: dict[str, object], payload: bytes = b"") -> None:
    """One complete frame to stdout."""
    data = memoryview(frame(message, payload))
    while data:
        data = data[os.write(1, data) :]


def compile_jobs(file: Path) -> None:
    """Compile every job of the file. Raises CacheError, ToolchainError."""
    order = json.loads(file.read_text(encoding="ascii"))
    store = StreamingStore()
    settings = CompileSettings(
        store=store,
        allocator=file.parent / ALLOCATOR,
        kernels_root=file.parent / "kernels",
        workers=order["count"],
        limits=WorkerLimits(**order["limits"]),
        report=store.report,
    )
    Scheduler([build(CompileJob, tree) for tree in order["jobs"]], settings).run()


def main(verb: str, argument: str) -> None:
    """Run one verb; an error is sent, too."""
    try:
        if verb == "toolchain":
            send(asdict(read_toolchain(argument)))
        else:
            compile_jobs(Path(argument))
    except AotforgeError as error:
        send({"error": error.what, "cause": error.cause, "hint": error.hint})


if __name__ == "__main__":
    main(*sys.argv[1:])
