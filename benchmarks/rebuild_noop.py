"""A repeated compile of a plan with every image cached: seconds for planning and for verifying the cache.

    python -m benchmarks.rebuild_noop [IMAGES]

The plan is real: one cheap family with this many functionals. The cache is filled with entries of that plan's
keys whose contents are real
attention images, in their real sizes; each is verified as any other (SHA-256 of the entry, of the image, its
key). The floor is
reading and hashing the same files without understanding them.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from aotforge.base.architectures import load_architectures, load_profiles
from aotforge.base.hazards import load_hazards
from aotforge.compile.cache import Cache
from aotforge.compile.cache_entry import Entry, encode
from aotforge.compile.compile_plan import compile_plan
from aotforge.plan.checkout import Checkout
from aotforge.plan.closure import SourceTree
from aotforge.plan.families import load_families
from aotforge.plan.model import Plan
from aotforge.plan.planner import make_plan, plan_project
from aotforge.toolchain.triton import pinned_triton, read_toolchain

ROOT = Path(__file__).parents[1]
TARGET_SECONDS = 5.0

RULES = """
from aotforge.rules import Argument, Choice, Family, Kernel, Operator, Setting, Term, Value

FAMILY = Family(
    name="many",
    operators=(
        Operator(
            name="many",
            values=(Value(name="X", type="ptr"), Value(name="n", type="i32"), Value(name="k", type="i32")),
        ),
    ),
    kernels=(
        Kernel(
            name="many",
            source="many.py",
            function="many",
            operator="many",
            choices=(
                Choice(name="variant", key="k", options={{number: number for number in range({count})}}),
            ),
            arguments=(
                Argument(name="x", type="*fp32", value="X", divisible_by=16),
                Argument(name="n", type="i32", value="n"),
            ),
            constants=lambda functional: {{"VARIANT": functional["variant"]}},
            settings=lambda target, functional: (Setting(constants={{"BLOCK": 64}}, num_warps=1),),
            grid=((Term(value="n", divisor="BLOCK"),),),
        ),
    ),
)
"""
KERNEL = """
import triton
import triton.language as tl

@triton.jit
def many(x, n, VARIANT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, VARIANT, mask=i < n)
"""


def make(kernels: Path) -> Plan:
    return make_plan(
        load_families(kernels),
        SourceTree(root=kernels),
        archs=["gfx908"],
        architectures=load_architectures(ROOT / "manifests"),
        profiles=load_profiles(ROOT / "manifests"),
        profile="full",
        toolchain=read_toolchain(pinned_triton(ROOT / "requirements" / "build.in")),
        hazards=load_hazards(ROOT / "manifests"),
    )


def rebuild(kernels: Path, folder: Path) -> dict[str, float]:
    """One repeated compile; what a fresh process runs."""
    began = time.monotonic()
    plan = make(kernels)
    planned = time.monotonic()
    with Cache(folder) as cache:
        images = compile_plan(
            plan, kernels_root=kernels, architectures=load_architectures(ROOT / "manifests"), cache=cache
        )
    return {"plan": planned - began, "verify": time.monotonic() - planned, "images": len(images)}


def real_entries(folder: Path) -> list[Entry]:
    """A few attention images, compiled now."""
    plan = plan_project(Checkout(ROOT), archs=["gfx908"], profile="quick")
    jobs = [job for job in plan.jobs if job.family == "flash"][::16]
    with Cache(folder) as cache:
        compile_plan(
            replace(plan, jobs=tuple(jobs)),
            kernels_root=ROOT / "kernels",
            architectures=load_architectures(ROOT / "manifests"),
            cache=cache,
        )
        return [entry for job in jobs if (entry := cache.load(job.key))]


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        kernels = base / "kernels"
        (kernels / "many").mkdir(parents=True)
        (kernels / "many" / "rules.py").write_text(RULES.format(count=count // 2))
        (kernels / "many" / "many.py").write_text(KERNEL)
        plan = make(kernels)
        entries = real_entries(base / "real")
        with Cache(base / "cache") as cache:
            for number, job in enumerate(plan.jobs):
                entry = entries[number % len(entries)]
                cache.store(job.key, encode(replace(entry, summary=replace(entry.summary, key=job.key))))
        files = sorted((base / "cache").glob("images-1/??/*"))
        total = sum(file.stat().st_size for file in files)
        began = time.monotonic()
        for file in files:
            hashlib.sha256(file.read_bytes()).digest()
        floor = time.monotonic() - began
        code = "import sys,json;from pathlib import Path;from benchmarks.rebuild_noop import rebuild;"
        code += "print(json.dumps(rebuild(Path(sys.argv[1]),Path(sys.argv[2]))))"
        began = time.monotonic()
        command = [sys.executable, "-c", code, str(kernels), str(base / "cache")]
        output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
        elapsed = time.monotonic() - began
    times = json.loads(output)
    print(f"images                     {times['images']}, {total / 2**20:.0f} MiB in the cache")
    print(f"read and hash (floor)      {floor:.2f} s")
    print(f"plan                       {times['plan']:.2f} s")
    print(f"verify the cache           {times['verify']:.2f} s: {times['verify'] / floor:.2f} x the floor")
    print(
        f"one process                {elapsed:.2f} s (target for the complete build: under {TARGET_SECONDS})"
    )


if __name__ == "__main__":
    main()
