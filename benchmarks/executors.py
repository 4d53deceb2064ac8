"""What a container costs: wall time of an empty step, and of compiling the same images, in each runner and
bare.

    python -m benchmarks.executors [rounds [runner ...]]

Bare and contained rounds alternate, and the least of each is taken.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from aotforge.base.architectures import load_architectures
from aotforge.base.progress import LineObserver
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.errors import AotforgeError
from aotforge.plan.checkout import Checkout
from aotforge.plan.planner import plan_project
from aotforge.run.choose import ORDER, make_runner
from aotforge.run.rootfs.cache import find_rootfs
from aotforge.run.step import ExecutionTarget, Step

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("AOTFORGE_CACHE") or ROOT / ".aotforge" / "cache")


def main(rounds: int, names: Sequence[str]) -> None:
    rootfs = find_rootfs(
        ROOT, "rocm-kernels", cache=CACHE, environment=dict(os.environ), observer=LineObserver(print)
    )
    empty = Step(name="empty", command=("/bin/true",), environment={})
    for name in names:
        try:
            runner = make_runner(name, cache=CACHE)
        except AotforgeError as error:
            print(f"{name}: {error.what}")
            continue
        runner.run(empty, rootfs)  # imports the image
        start = min(seconds(lambda: runner.run(empty, rootfs)) for _ in range(5))  # noqa: B023 - called here
        target = ExecutionTarget(runner=runner, rootfs=rootfs)
        pairs = [(compiled(None), compiled(target)) for _ in range(rounds)]
        bare, inside = (min(column) for column in zip(*pairs, strict=True))
        print(f"{name}: start {start:.2f} s; {inside:.1f} s against {bare:.1f} s bare: {inside / bare:.3f}")


def seconds(work: Callable[[], object]) -> float:
    """Wall time of `work`."""
    start = time.monotonic()
    work()
    return time.monotonic() - start


def compiled(execution: ExecutionTarget | None) -> float:
    """Wall time of compiling the smoke profile into an empty cache."""
    plan = plan_project(Checkout(ROOT), archs=["gfx908"], profile="smoke")
    with tempfile.TemporaryDirectory() as folder, Cache(Path(folder)) as cache:
        return seconds(
            lambda: compile_plan(
                plan,
                kernels_root=ROOT / "kernels",
                architectures=load_architectures(ROOT / "manifests"),
                cache=cache,
                jobs=2,
                execution=execution,
            )
        )


if __name__ == "__main__":
    main(int((sys.argv[1:] or ["3"])[0]), sys.argv[2:] or ORDER)
