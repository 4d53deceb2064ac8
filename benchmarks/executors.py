"""What a container costs: CPU seconds of compiling the same images in each executor and bare, and the start of an empty step.

    python -m benchmarks.executors [rounds [executor ...]]

CPU seconds are those of the compile processes: the agent's count of its step, and this process' count of its children for the bare machine.
Bare and contained rounds alternate, and the least of each is taken.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aotforge.base.architectures import load_architectures
from aotforge.base.progress import LineObserver
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.errors import AotforgeError
from aotforge.plan.checkout import Checkout
from aotforge.plan.planner import plan_project
from aotforge.sandbox.executors.choose import make_executor, resolve_rootfs
from aotforge.sandbox.executors.executor import ExecutionTarget, Executor
from aotforge.sandbox.executors.step import RootFS, Step, StepResult

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("AOTFORGE_CACHE") or ROOT / ".aotforge" / "cache")
STARTS = 5


class Counted:
    """An executor that adds up the CPU seconds of its steps."""

    def __init__(self, executor: Executor) -> None:
        self._executor, self.name, self.cpu = executor, executor.name, 0.0

    def run(self, step: Step, rootfs: RootFS | None, **words: Any) -> StepResult:
        done = self._executor.run(step, rootfs, **words)
        self.cpu += done.cpu_seconds
        return done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)


def main(rounds: int, names: Sequence[str]) -> None:
    rootfs = resolve_rootfs(
        ROOT, "rocm-kernels", cache=CACHE, environment=dict(os.environ), observer=LineObserver(print)
    )
    for name in names:
        try:
            executor = make_executor(name, cache=CACHE)
        except AotforgeError as error:
            print(f"{name}: {error.what}")
            continue
        empty = Step(name="empty", command=("/bin/true",), environment={}, inputs=b"")
        executor.run(empty, rootfs)  # loads the image
        starts = []
        for _ in range(STARTS):
            start = time.monotonic()
            executor.run(empty, rootfs)
            starts.append(time.monotonic() - start)
        pairs = [(bare(), contained(executor, rootfs)) for _ in range(rounds)]
        outside, inside = min(a for a, _ in pairs), min(b for _, b in pairs)
        print(
            f"{name}: start {min(starts):.2f} s; CPU {inside:.1f} s against {outside:.1f} s bare: {inside / outside:.3f}"
        )


def bare() -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    compiled(None)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def contained(executor: Executor, rootfs: RootFS) -> float:
    counted: Any = Counted(executor)
    compiled(ExecutionTarget(executor=counted, rootfs=rootfs))
    return float(counted.cpu)


def compiled(execution: ExecutionTarget | None) -> None:
    plan = plan_project(Checkout(ROOT), archs=["gfx908"], profile="smoke")
    with tempfile.TemporaryDirectory() as folder, Cache(Path(folder)) as cache:
        compile_plan(
            plan,
            kernels_root=ROOT / "kernels",
            architectures=load_architectures(ROOT / "manifests"),
            cache=cache,
            jobs=2,
            execution=execution,
        )


if __name__ == "__main__":
    main(int((sys.argv[1:] or ["3"])[0]), sys.argv[2:] or ("bubblewrap", "docker", "podman"))
