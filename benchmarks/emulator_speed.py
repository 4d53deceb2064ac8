"""How fast the emulator executes: wave-instructions a second of a core, plain and with every check on, and
what a second thread adds.

    python -m benchmarks.emulator_speed [ARCH]

Kernels, bounds checks always on: `add` on many elements (memory and addresses), attention's backward
preprocessing (float arithmetic and
reductions, no matrix instructions), and attention forward (matrix instructions, LDS, exponentials): the
shipped kernel, and a fixed one, whose
numbers stay comparable when the shipped one is retuned (emulator_kernel.py).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from aotforge.base.architectures import load_architectures
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.model import KernelImage
from aotforge.plan.checkout import Checkout
from aotforge.plan.model import Plan
from aotforge.plan.planner import plan_project
from benchmarks.emulator_kernel import FixedAttention
from kernels.flash.rules import FAMILY
from tests.integration.kernels.attention_call import Case, Guarded, Layout, values_of
from tests.support.source_launches import SourceLaunch, select
from vgpu.cache import default_cache
from vgpu.emulator.program import Emulator, LaunchReport, LaunchRequest, Program
from vgpu.memory import Memory

ROOT = Path(__file__).parents[1]
TARGET, TARGET_FLASH = (10.0, 5.0), (40.0, 20.0)
"""M wave-instructions a second of one core: with bounds checks, with every check."""
ROUNDS = 5
CASE = Case(heads_q=4, seqlen_q=512, seqlen_k=512, head_dim=64, heads_k=4, sm_scale=0.125, batch=1)


class Kernels:
    """Programs of the core plan, compiled on demand."""

    def __init__(self, arch: str, folder: Path) -> None:
        self.plan: Plan = plan_project(Checkout(ROOT), archs=[arch], profile="core")
        self._folder, self._emulator = folder, Emulator(arch, cache=default_cache())

    def program(self, label: str) -> tuple[Program, KernelImage]:
        job = next(job for job in self.plan.jobs if job.label.startswith(label))
        with Cache(self._folder) as cache:
            images = compile_plan(
                replace(self.plan, jobs=(job,)),
                kernels_root=ROOT / "kernels",
                architectures=load_architectures(ROOT / "manifests"),
                cache=cache,
            )
            image = images[job.key]
        return self._emulator.load(image.binary, image.asm), image


Run = Callable[[int, bool], LaunchReport]
"""A launch on a number of threads, with every check on or none."""


def add(kernels: Kernels, arch: str) -> Run:
    program, image = kernels.program(f"add.add:{arch}:dtype=fp16:0u")
    count = 1 << 18
    x, y, out = (np.ones(count, dtype=np.float16) for _ in range(3))
    memory = Memory({"x": x, "y": y, "out": out})
    arguments = [x.ctypes.data, y.ctypes.data, out.ctypes.data, count]
    lds = image.resources.dynamic_shared_bytes
    return lambda jobs, checks: program.launch(
        LaunchRequest(
            grid=(count // 1024, 1, 1),
            arguments=arguments,
            memory=memory,
            lds_bytes=lds,
            jobs=jobs,
            checks=checks,
        )
    )


def attention(kernels: Kernels, arch: str, name: str) -> Run:
    tensors = {n: Guarded(CASE.shape(n), CASE.dtype, Layout(), v) for n, v in CASE.inputs().items()}
    for n in ("Out", "DQ", "DK", "DV"):
        tensors[n] = Guarded(CASE.shape(n), CASE.dtype, Layout(), np.ones(CASE.shape(n)))
    for n in ("L", "D"):
        tensors[n] = Guarded((1, CASE.heads_q, CASE.seqlen_q), "fp32", Layout())
    kernel = next(k for k in FAMILY.kernels if k.name == name)
    launch: SourceLaunch = select(kernel, kernels.plan.jobs[0].target, values_of(CASE, tensors))
    job = next(
        j
        for j in kernels.plan.jobs
        if j.kernel == name
        and dict(j.constants) == dict(launch.constants)
        and bool(j.hints) == launch.hinted
        and dict(j.signature)["Out" if "Out" in dict(j.signature) else "K"] == "*fp16"
    )
    program, image = kernels.program(job.label)
    memory = Memory({n: tensor.storage for n, tensor in tensors.items()})
    arguments = [float(v) if launch.types[n] == "fp32" else v for n, v in launch.arguments.items()]
    lds = image.resources.dynamic_shared_bytes
    return lambda jobs, checks: program.launch(
        LaunchRequest(
            grid=launch.grid, arguments=arguments, memory=memory, lds_bytes=lds, jobs=jobs, checks=checks
        )
    )


def rate(run: Run, checks: bool) -> tuple[float, LaunchReport]:
    """The best of a few rounds in million wave-instructions a second of CPU time: others use this machine
    too."""
    rates = []
    for _ in range(ROUNDS):
        began = time.process_time()
        report = run(1, checks)
        rates.append(report.instructions / (time.process_time() - began) / 1e6)
    return max(rates), report


def gain(run: Run, checks: bool) -> float:
    """Wall time of one thread as a multiple of that of two."""
    one_thread, two_threads = (min(run(jobs, checks).seconds for _ in range(ROUNDS)) for jobs in (1, 2))
    return one_thread / two_threads


def main() -> None:
    arch = sys.argv[1] if len(sys.argv) > 1 else "gfx908"
    with tempfile.TemporaryDirectory() as folder:
        kernels = Kernels(arch, Path(folder))
        lines: list[tuple[str, Run, tuple[float, float]]] = [
            ("add", add(kernels, arch), TARGET),
            ("bwd_preprocess", attention(kernels, arch, "bwd_preprocess"), TARGET),
            ("attn_fwd", attention(kernels, arch, "attn_fwd"), TARGET_FLASH),
            ("fixed attn_fwd", FixedAttention(arch), TARGET_FLASH),
        ]
        print(f"{arch}, {len(os.sched_getaffinity(0))} CPUs, load {os.getloadavg()[0]:.1f}")
        for name, run, targets in lines:
            for checks, target in zip((False, True), targets, strict=True):
                speed, report = rate(run, checks)
                matrix = sum(n for m, n in report.counts.items() if m.startswith(("v_mfma", "v_wmma")))
                print(
                    f"{name:15} {'every check' if checks else 'plain':12} {speed:6.2f} M/s of a core, "
                    f"{speed / target:.2f} x the "
                    f"target, {gain(run, checks):.2f} x on two threads; {report.instructions} instructions, "
                    f"{100 * matrix / report.instructions:.1f} % matrix"
                )


if __name__ == "__main__":
    main()
