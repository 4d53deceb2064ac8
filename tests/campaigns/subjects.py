"""Images that a campaign alters, and the verification calls on which they are executed."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.model import KernelImage
from aotforge.errors import ExecutionError
from aotforge.plan.model import CompileJob
from aotforge.verify.compare import Expected
from aotforge.verify.interpreter.dispatch import Launch, Use, launch_of, uses_of
from aotforge.verify.interpreter.number_formats import EPSILON
from aotforge.verify.invocation import Invocation, load_cases
from aotforge.verify.tensors import Float
from tests.support.families import PROJECT, architectures, plan_project
from vgpu.emulator.decoded import Checks, Listing
from vgpu.emulator.program import Emulator, LaunchReport, LaunchRequest, Program, Step, Trace
from vgpu.emulator.targets import emulated_target
from vgpu.memory import Memory

KERNELS = PROJECT / "kernels"
ATTENTION = ("attn_fwd", "bwd_preprocess", "bwd_dk_dv", "bwd_dq")
T = TypeVar("T")
_ENDLESS = 10
"""A workgroup that executes this many times the instructions of the unaltered launch does not end."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An image and the ways in which its plan dispatches to it."""

    job: CompileJob
    image: KernelImage
    uses: tuple[Use, ...]
    folder: Path

    @property
    def label(self) -> str:
        return self.job.label

    @property
    def arch(self) -> str:
        return self.job.target.arch

    def load(self, hsaco: bytes) -> Program:
        """The image's text with bytes that are verified to be the same. Raises DecodeError when they are
        not."""
        return Emulator(self.arch, cache=self.folder).load(hsaco, self.image.asm)

    def altered(self, listing: Listing) -> Program:
        """The image with other instructions, which is not verified. Raises DecodeError, UnsupportedError."""
        return Program(emulated_target(self.arch), listing, self.image.binary, self.folder)


def subjects(arch: str, wanted: Callable[[str], bool], folder: Path) -> list[Subject]:
    """Attention images of an arch's `quick` profile whose labels are wanted, in the plan's order."""
    plan = plan_project(PROJECT, archs=[arch], profile="quick")
    jobs = tuple(
        replace(job, spills="report") for job in plan.jobs if job.family == "flash" and wanted(job.label)
    )
    uses = uses_of(plan, {job.key: arch for job in jobs})
    with Cache(folder) as cache:
        made = compile_plan(
            replace(plan, jobs=jobs), kernels_root=KERNELS, architectures=architectures(), cache=cache
        )
        return [Subject(job=job, image=made[job.key], uses=uses[job.key], folder=folder) for job in jobs]


def of_each(
    work: Callable[[Subject], T], arch: str, wanted: Callable[[str], bool], folder: Path, jobs: int
) -> Iterator[T]:
    """What a function of a module makes of every such image, in `jobs` processes."""
    arguments = [(work, arch, subject.label, folder) for subject in subjects(arch, wanted, folder)]
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(_of_one, arguments)


def _of_one(arguments: tuple[Callable[[Subject], T], str, str, Path]) -> T:
    work, arch, label, folder = arguments
    (subject,) = subjects(arch, label.__eq__, folder)
    return work(subject)


def command(description: str) -> argparse.ArgumentParser:
    """Flags of every campaign; the cache is the environment's."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--arch", default="gfx908")
    parser.add_argument("--kernels", nargs="+", default=ATTENTION, choices=ATTENTION)
    parser.add_argument("--match", default="", help="only images whose labels contain this")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, help="write every result here")
    parser.set_defaults(folder=Path(os.environ.get("AOTFORGE_CACHE", ".aotforge/cache")))
    return parser


def print_results(flags: argparse.Namespace, done: Sequence[Any], report: str) -> None:
    """The report, and the results as JSON where the flags name a file."""
    if flags.json:
        flags.json.write_text(json.dumps([asdict(one) for one in done], indent=1) + "\n")
    sys.stdout.write(report)


def labelled(kernels: Sequence[str], match: str) -> Callable[[str], bool]:
    """Whether an image's label is of some kernels and contains a text."""
    return lambda label: label.split(":")[0].split(".")[1] in kernels and match in label


@dataclass(frozen=True, kw_only=True)
class Call:
    """One launch to try, with the unaltered image's results. Outputs are complete buffers, canaries
    included."""

    name: str
    invocation: Invocation
    launch: Launch
    schedule: int | None
    seed: int
    limit: int
    expected: Mapping[str, Expected]
    fresh: Mapping[str, npt.NDArray[np.generic]]
    right: Mapping[str, npt.NDArray[np.generic]]


def calls_of(
    subject: Subject, program: Program, schedules: Sequence[int | None]
) -> tuple[list[Call], set[int]]:
    """Every case that is dispatched to the image, per schedule; and the addresses of the instructions that
    they execute."""
    cases = load_cases(KERNELS, "flash")
    assert cases is not None
    found: list[Call] = []
    executed: set[int] = set()

    def trace(step: Step) -> None:
        executed.add(step.line.address)

    for use in subject.uses:
        for number, case in enumerate(cases(use.called, dict(zip(use.kernel.keys, use.key, strict=True)))):
            invocation = case.make()
            launch = launch_of(use, invocation.values)
            if launch is None or 0 in launch.grid:
                continue
            expected = {name: one for name, one in invocation.expected().items() if isinstance(one, Expected)}
            fresh = {name: tensor.storage.copy() for name, tensor in invocation.outputs.items()}
            for index, schedule in enumerate(schedules):
                call = Call(
                    name=case.name, invocation=invocation, launch=launch, schedule=schedule,
                    seed=1 + 2 * number + index,
                    limit=1 << 40, expected=expected, fresh=fresh, right={},
                )  # fmt: skip
                report = execute(program, subject, call, trace=trace if index == 0 else None)
                assert wrong(call) == [], (subject.label, case.name)
                right = {name: tensor.storage.copy() for name, tensor in invocation.outputs.items()}
                found.append(replace(call, limit=_ENDLESS * report.instructions, right=right))
    return found, executed


def execute(
    program: Program,
    subject: Subject,
    call: Call,
    *,
    trace: Trace | None = None,
    checks: bool | Checks = False,
) -> LaunchReport:
    """Launch on fresh outputs. Raises ExecutionError."""
    for tensor in call.invocation.inputs.values():
        tensor.storage.flags.writeable = False
    for name, tensor in call.invocation.outputs.items():
        tensor.storage[...] = call.fresh[name]
    tensors = {**call.invocation.inputs, **call.invocation.outputs}
    return program.launch(
        LaunchRequest(
            grid=call.launch.grid,
            arguments=list(call.launch.arguments.values()),
            memory=Memory({name: tensor.storage for name, tensor in tensors.items()}),
            lds_bytes=subject.image.resources.dynamic_shared_bytes,
            schedule=call.schedule,
            seed=call.seed,
            limit=call.limit,
            jobs=1,
            trace=trace,
            checks=checks,
        )
    )


def wrong(call: Call) -> list[str]:
    """Errors of the current outputs by the verifier's own criteria."""
    found = []
    for name, tensor in call.invocation.outputs.items():
        compared = call.expected[name].compare(tensor.values())
        if not tensor.intact():
            found.append(f"writes outside of {name}")
        if compared.element > 1:
            found.append(f"{name} is {compared.element:.3g} times its bound off")
        if compared.tensor > 1:
            found.append(f"{name} errs by {compared.tensor:.3g} times what its precision allows")
        if compared.tile > 1:
            found.append(f"a tile of {name} is scaled")
    return found


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of an altered program. `kind`: fault, wrong, within (numbers changed inside the bound) or
    identical. `runs`: launches until then; `ratio` the worst error in multiples of the bound, `growth` in
    multiples of the unaltered image's worst error of the same output in the same call."""

    kind: str
    runs: int
    detail: str = ""
    ratio: float = 0.0
    growth: float = 0.0


def try_calls(program: Program, subject: Subject, calls: Sequence[Call], *, checks: bool = False) -> Outcome:
    """Execute an altered program on the calls until one shows the fault; `checks`: everything that the
    emulator can look for."""
    changed: list[str] = []
    ratio = growth = 0.0
    for number, call in enumerate(calls, 1):
        try:
            execute(program, subject, call, checks=checks)
        except ExecutionError as error:
            return Outcome(kind="fault", runs=number, detail=f"{call.name}: {error.what}")
        outputs = call.invocation.outputs
        if all(np.array_equal(tensor.storage, call.right[name]) for name, tensor in outputs.items()):
            continue
        if found := wrong(call):
            return Outcome(kind="wrong", runs=number, detail=f"{call.name}: {found[0]}")
        changed.append(call.name)
        for name, tensor in outputs.items():
            actual = tensor.values()
            ratio = max(ratio, float(call.expected[name].bounded.misses(actual).max(initial=0.0)))
            tensor.storage[...] = call.right[name]
            rounding = EPSILON[call.expected[name].dtype]
            growth = max(
                growth, _growth(call.expected[name].bounded.value, actual, tensor.values(), rounding)
            )
    if changed:
        detail = f"{len(changed)} of {len(calls)} runs differ, first: {changed[0]}"
        return Outcome(kind="within", runs=len(calls), detail=detail, ratio=ratio, growth=growth)
    return Outcome(kind="identical", runs=len(calls))


def _growth(reference: Float, altered: Float, right: Float, rounding: float) -> float:
    """The largest error of the altered outputs in multiples of the largest one of the unaltered, or of one
    rounding of the largest value: a call whose results happen to be exact has no error to compare with."""
    finite = np.isfinite(reference)
    worst, usual = (float(np.abs(x[finite] - reference[finite]).max(initial=0.0)) for x in (altered, right))
    usual = max(usual, rounding * float(np.abs(reference[finite]).max(initial=0.0)))
    return worst / usual if usual else 1.0 if worst == 0 else np.inf
