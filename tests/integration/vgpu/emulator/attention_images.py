"""Attention calls executed by the emulator on real images, on the guarded buffers of the interpreter's
tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.model import KernelImage
from aotforge.compile.pool import WorkerLimits
from aotforge.plan.model import CompileJob, Plan
from aotforge.rules import Target
from kernels.flash.bounds import bounds
from kernels.flash.call import tensor_of
from kernels.flash.rules import FAMILY
from tests.integration.kernels.attention_call import Case, Guarded, Outcome, values_of
from tests.support.families import PROJECT, architectures, plan_project
from tests.support.source_launches import SourceLaunch, select
from vgpu.emulator.program import Emulator, LaunchReport, LaunchRequest, Program
from vgpu.memory import Memory

OPERATORS = ("attn_fwd", "attn_bwd")
ALL = ("out", "lse", "delta", "dq", "dk", "dv")


class Images:
    """Images of one arch, compiled at their first use, and their programs."""

    def __init__(self, arch: str, cache: Path, *, profile: str = "core") -> None:
        self._plan: Plan = plan_project(PROJECT, archs=[arch], profile=profile)
        self.target: Target = self._plan.jobs[0].target
        self._folder = cache
        self._emulator = Emulator(arch, cache=cache)
        self._images: dict[str, KernelImage] = {}
        self._programs: dict[str, Program] = {}

    @property
    def jobs(self) -> tuple[CompileJob, ...]:
        # settings that are not tuned for an arch may spill: here that is one more thing to execute
        return tuple(replace(job, spills="report") for job in self._plan.jobs if job.family == "flash")

    def compile(self, jobs: tuple[CompileJob, ...]) -> None:
        """Compile several images at once, in as many processes as the machine allows."""
        with Cache(self._folder) as cache:
            made = compile_plan(
                replace(self._plan, jobs=jobs),
                kernels_root=PROJECT / "kernels",
                architectures=architectures(),
                cache=cache,
                limits=WorkerLimits(),
            )
            self._images.update({job.key: made[job.key] for job in jobs})

    def job_of(self, launch: SourceLaunch) -> CompileJob:
        """The job whose image serves a launch."""
        found = [
            job
            for job in self.jobs
            if job.kernel == launch.kernel.name
            and dict(job.constants) == dict(launch.constants)
            and bool(job.hints) == launch.hinted
            and {**dict(job.signature), **launch.types} == dict(job.signature)
            and dict(job.options)["num_warps"] == launch.setting.num_warps
        ]
        assert len(found) == 1, [job.label for job in found]
        return found[0]

    def prepare(self, cases: Iterable[Case]) -> None:
        """Compile what these cases launch, all at once."""
        wanted = {}
        for case in cases:
            for launch in launches(case, self.target, tensors_of(case)):
                job = self.job_of(launch)
                wanted[job.key] = job
        self.compile(tuple(job for key, job in wanted.items() if key not in self._images))

    def image(self, job: CompileJob) -> KernelImage:
        if job.key not in self._images:
            self.compile((job,))
        return self._images[job.key]

    def program(self, job: CompileJob) -> Program:
        if job.key not in self._programs:
            image = self.image(job)
            self._programs[job.key] = self._emulator.load(image.binary, image.asm)
        return self._programs[job.key]


@dataclass(frozen=True, kw_only=True)
class Done:
    """Results of a case, and the images that were launched."""

    outcome: Outcome
    reports: Mapping[str, LaunchReport]


def tensors_of(case: Case) -> dict[str, Guarded]:
    inputs = case.inputs()
    tensors = {name: tensor_of(case, name, inputs[name]) for name in inputs}
    return tensors | {name: tensor_of(case, name) for name in ("Out", "DQ", "DK", "DV", "L", "D")}


def launches(case: Case, target: Target, tensors: Mapping[str, Guarded]) -> list[SourceLaunch]:
    """The launches of the library for forward and backward, empty grids left out."""
    values = values_of(case, tensors)
    kernels = [
        kernel
        for operator in OPERATORS
        for kernel in sorted((k for k in FAMILY.kernels if k.operator == operator), key=lambda k: k.step)
    ]
    chosen = [select(kernel, target, values) for kernel in kernels]
    return [launch for launch in chosen if 0 not in launch.grid]


def execute(case: Case, images: Images, *, schedule: int | None = None, seed: int = 1) -> Done:
    """Forward, then backward from its results."""
    tensors = tensors_of(case)
    memory = Memory({name: tensor.storage for name, tensor in tensors.items()})
    reports = {}
    for launch in launches(case, images.target, tensors):
        job = images.job_of(launch)
        arguments = [
            float(value) if launch.types[name] == "fp32" else value
            for name, value in launch.arguments.items()
        ]
        reports[job.label] = images.program(job).launch(
            LaunchRequest(
                grid=launch.grid,
                arguments=arguments,
                memory=memory,
                lds_bytes=images.image(job).resources.dynamic_shared_bytes,
                schedule=schedule,
                seed=seed,
            )
        )
    outcome = Outcome(
        out=tensors["Out"].values(),
        lse=tensors["L"].values(),
        delta=tensors["D"].values(),
        dq=tensors["DQ"].values(),
        dk=tensors["DK"].values(),
        dv=tensors["DV"].values(),
        tensors=tensors,
    )
    return Done(outcome=outcome, reports=reports)


def misses(case: Case, outcome: Outcome) -> dict[str, float]:
    """The worst element of each result, in multiples of its bound; at most 1 is right."""
    i = case.inputs()
    expected = bounds(
        i["Q"], i["K"], i["V"], i["DO"], case.options(i), dtype=case.dtype,
    )  # fmt: skip
    return {name: float(expected[name].misses(getattr(outcome, name)).max(initial=0.0)) for name in ALL}


def assert_right(case: Case, outcome: Outcome) -> None:
    worst = misses(case, outcome)
    assert {name: ratio for name, ratio in worst.items() if ratio > 1} == {}
    assert [name for name in ("Q", "K", "V", "DO") if not outcome.tensors[name].unchanged()] == []
    assert [name for name, tensor in outcome.tensors.items() if not tensor.intact()] == []
