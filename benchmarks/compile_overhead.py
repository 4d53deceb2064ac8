"""Cost of the compile package over Triton's stages: CPU time per image, and elapsed time against a process
per kernel.

    python -m benchmarks.compile_overhead [IMAGES]

Four ways to the same images of the core plan, one after another in
one run: `bare`, a loop over the AMD backend's stages in one warm process; `pinned`, the same loop with the
workers'
allocator instead of glibc's; `scheduled`, compile_plan with an empty cache; `apart`, a process per kernel, as
many at
once as the compile package has workers. CPU time counts everything that each way starts, interpreters and
imports
included.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from aotforge.base.architectures import load_architectures
from aotforge.base.machine import available_cpus
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.model import CompileEvent
from aotforge.compile.pool import worker_environment
from aotforge.plan.checkout import Checkout
from aotforge.plan.model import Plan
from aotforge.plan.planner import plan_project
from aotforge.toolchain.allocator import build_allocator

ROOT = Path(__file__).parents[1]
TARGET_CPU = 1.10
TARGET_PINNED = 1.05
TARGET_SPEEDUP = 1.4


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(entry.ru_utime + entry.ru_stime for entry in used)


def sample(plan: Plan, count: int) -> Plan:
    """Jobs spread evenly over the plan."""
    step = max(1, len(plan.jobs) // count)
    return replace(plan, jobs=plan.jobs[::step][:count])


def bare(jobs: list[dict[str, Any]]) -> None:
    """Only what Triton needs: no checks, no cache, no messages. Runs in a process of its own."""
    import importlib  # noqa: PLC0415 - this function is the complete program of its process

    from triton._C.libtriton import ir  # noqa: PLC0415
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415
    from triton.compiler.compiler import ASTSource, make_backend  # noqa: PLC0415

    sys.path.insert(0, str(ROOT))
    for job in jobs:
        function = getattr(
            importlib.import_module(f"kernels.{job['source'][:-3].replace('/', '.')}"), job["function"]
        )
        target = GPUTarget("hip", job["arch"], 64)
        backend = make_backend(target)
        names = list(job["signature"])
        hints = {(names.index(name),): [["tt.divisibility", value]] for name, value in job["hints"].items()}
        source = ASTSource(function, job["signature"], job["constants"], hints)
        options = backend.parse_options(dict(job["options"]))
        stages: dict[str, Any] = {}
        notes = dict(options.__dict__)
        backend.add_stages(stages, options, source.language)
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        module = source.make_ir(
            target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
        )
        for stage in stages.values():
            module = stage(module, notes)


def run_bare(jobs: list[dict[str, Any]], environment: dict[str, str]) -> None:
    command = [
        sys.executable,
        "-c",
        "import json,sys;from benchmarks.compile_overhead import bare;bare(json.load(sys.stdin))",
    ]
    subprocess.run(command, input=json.dumps(jobs), text=True, check=True, env=environment, cwd=ROOT)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 24
    plan = sample(plan_project(Checkout(ROOT), archs=["gfx908"]), count)
    jobs = [
        {
            "source": job.source,
            "function": job.function,
            "arch": job.target.arch,
            "signature": dict(job.signature),
            "constants": dict(job.constants),
            "hints": dict(job.hints),
            "options": dict(job.options),
        }
        for job in plan.jobs
    ]
    cpus = available_cpus()
    with tempfile.TemporaryDirectory() as folder:
        environment = worker_environment(plan.toolchain.environment, Path(folder))
        run_bare(jobs[:1], environment)  # the file cache is warm for all runs
        before = cpu_seconds()
        run_bare(jobs, environment)
        bare_cpu = cpu_seconds() - before
        library = build_allocator(Path(folder))
        before = cpu_seconds()
        run_bare(jobs, environment | {"LD_PRELOAD": str(library)})
        pinned_cpu = cpu_seconds() - before
        scheduled_cpu, _, peak = scheduled(plan, Path(folder) / "one", 1)
        _, scheduled_seconds, more = scheduled(plan, Path(folder) / "all", cpus)
        began = time.monotonic()
        with ThreadPoolExecutor(cpus) as pool:
            list(pool.map(lambda job: run_bare([job], environment), jobs))
        apart_seconds = time.monotonic() - began
    number = len(jobs)
    print(f"images                         {number}, {cpus} CPUs, load {os.getloadavg()[0]:.1f}")
    print(f"CPU per image, bare stages     {bare_cpu / number:.3f} s")
    print(
        f"CPU per image, pinned allocator {pinned_cpu / number:.3f} s: {pinned_cpu / bare_cpu:.3f} x (target "
        f"at most {TARGET_PINNED})"
    )
    print(
        f"CPU per image, compile package {scheduled_cpu / number:.3f} s: {scheduled_cpu / bare_cpu:.3f} x "
        f"(target at most {TARGET_CPU})"
    )
    print(f"time, compile package          {scheduled_seconds:.2f} s")
    print(
        f"time, a process per kernel     {apart_seconds:.2f} s: {apart_seconds / scheduled_seconds:.2f} x "
        f"(target at least {TARGET_SPEEDUP})"
    )
    print(f"peak memory of a worker        {max(peak, more) / 2**20:.0f} MiB (target at most 1536)")


def scheduled(plan: Plan, folder: Path, jobs: int) -> tuple[float, float, int]:
    """CPU seconds, wall seconds, peak bytes of a worker."""
    events: list[CompileEvent] = []
    before, began = cpu_seconds(), time.monotonic()
    with Cache(folder) as cache:
        compile_plan(
            plan,
            kernels_root=ROOT / "kernels",
            architectures=load_architectures(ROOT / "manifests"),
            cache=cache,
            jobs=jobs,
            on_event=events.append,
        )
    return cpu_seconds() - before, time.monotonic() - began, max(event.peak_bytes for event in events)


if __name__ == "__main__":
    main()
