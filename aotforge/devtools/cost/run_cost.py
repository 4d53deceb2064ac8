"""Measure images on one case each and estimate: what `invoke cost` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotforge.compile.model import KernelImage, Resources
from aotforge.devtools.cost.arch_rates import IssueModel, model_of
from aotforge.devtools.cost.candidates import (
    Candidate,
    architecture,
    compiled,
    find_image,
    is_kernel,
    with_setting,
)
from aotforge.devtools.cost.hot import HotLine, hot_lines
from aotforge.devtools.cost.model import Estimate, estimate
from aotforge.devtools.cost.work import Work, add_up
from aotforge.errors import RulesError, UnknownNameError, UnsupportedError, suggest
from aotforge.verify.invocation import Case, Invocation, load_cases, load_shaped
from aotforge.virtual_gpu.emulator.launch import LaunchRequest
from aotforge.virtual_gpu.emulator.measure import Meter
from aotforge.virtual_gpu.emulator.program import Emulator
from aotforge.virtual_gpu.interpreter.dispatch import Launch, launch_of, uses_of


@dataclass(frozen=True, kw_only=True)
class CostRequest:
    """`images`: labels, digits of keys or digests, or kernels; `settings` of the kernel that stands first. `case` by name, or
    `shape`; neither: a typical call. The first of all is what the others are compared with. `top` busiest instructions are listed.
    """

    root: Path
    cache: Path
    images: tuple[str, ...]
    arch: str
    profile: str | None = None
    settings: tuple[Mapping[str, str], ...] = ()
    keys: Mapping[str, str]
    case: str | None = None
    shape: Mapping[str, str]
    top: int = 0


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One image's work on a case, the estimate, and its busiest instructions."""

    name: str
    digest: str
    arch: str
    chip: str
    case: str
    grid: tuple[int, int, int]
    resources: Resources
    work: Work
    estimate: Estimate
    hot: tuple[HotLine, ...] = ()


def cost(request: CostRequest) -> tuple[Cost, ...]:
    """Compile what is missing, run and measure each. Raises UnknownNameError, UnsupportedError, RulesError, ExecutionError, and what
    planning, compiling and loading raise.
    """
    model = model_of(request.arch)
    candidates = _candidates(request)
    images = compiled(candidates, request.root, request.cache)
    return tuple(_measured(request, one, image, model) for one, image in zip(candidates, images, strict=True))


def _candidates(request: CostRequest) -> list[Candidate]:
    found = []
    for number, name in enumerate(request.images):
        if is_kernel(request.root, name):
            for setting in (request.settings if number == 0 else ()) or ({},):
                found.append(with_setting(request.root, name, setting, arch=request.arch, keys=request.keys))
        elif number == 0 and request.settings:
            raise UnsupportedError(
                f"{name} is an image, and settings are a kernel's", hint="name the kernel, e.g. attn_fwd"
            )
        else:
            found.append(
                find_image(
                    request.root, name, arch=request.arch, profile=request.profile, cache=request.cache
                )
            )
    return found


def _measured(request: CostRequest, one: Candidate, image: KernelImage, model: IssueModel) -> Cost:
    case, invocation, launch = _call(request, one)
    program = Emulator(request.arch, cache=request.cache).load(image.hsaco, image.asm)
    meter = Meter(model.banks)
    program.launch(
        LaunchRequest(
            grid=launch.grid,
            arguments=tuple(launch.arguments.values()),
            memory=invocation.memory(),
            lds_bytes=image.resources.dynamic_lds_bytes,
            meter=meter,
        )
    )
    assert meter.result is not None
    waves = -(-program.threads // program.target.lanes)
    x, y, z = launch.grid
    work = add_up(meter.result, workgroups=x * y * z, waves=waves, wavefront=program.target.lanes)
    simds = architecture(request.root, request.arch).simds_per_cu
    found = estimate(work, model, arch=request.arch, occupancy=image.resources.occupancy, simds=simds)
    return Cost(
        name=one.name,
        digest=image.digest,
        arch=request.arch,
        chip=model.name,
        case=case,
        grid=launch.grid,
        resources=image.resources,
        work=work,
        estimate=found,
        hot=hot_lines(meter.result, model, arch=request.arch, simds=simds, count=request.top),
    )


def _call(request: CostRequest, one: Candidate) -> tuple[str, Invocation, Launch]:
    """A call that leads to the image: its case's name, data, grid and arguments."""
    uses = uses_of(one.plan, {job.key: job.target.arch for job in one.plan.jobs})[one.job.key]
    tried = []
    for use in uses:
        keys = dict(zip(use.kernel.keys, use.key, strict=True))
        for case in _cases(request, one, use.kernel.name, keys):
            tried.append(case.name)
            invocation = _made(case, request.shape)
            launch = launch_of(use, invocation.values)
            if launch is not None and 0 not in launch.grid:
                return case.name, invocation, launch
    what = f"the case {tried[0]!r}" if len(tried) == 1 else f"none of {len(tried)} cases"
    raise UnsupportedError(
        f"{what} leads to {one.name}",
        cause="other lengths or alignments are served by other images, or nothing is launched",
        hint="choose another --case or --shape",
    )


def _made(case: Case, shape: Mapping[str, str]) -> Invocation:
    """A shape of the user's may be none: negative, or two query heads for three key heads."""
    try:
        return case.make()
    except (ArithmeticError, IndexError, ValueError) as error:
        if not shape:
            raise
        raise UnsupportedError(
            f"there is no call with {case.name}", cause=str(error), hint="choose another --shape"
        ) from error


def _cases(request: CostRequest, one: Candidate, kernel: str, keys: Mapping[str, int]) -> Sequence[Case]:
    root = request.root / "kernels"
    cases = load_cases(root, one.folder)
    if cases is None:
        raise RulesError(
            f"the family in kernels/{one.folder} has no cases.py", hint="see aotforge/verify/invocation.py"
        )
    if request.case is not None:
        named = [case for case in cases(kernel, keys) if case.name == request.case]
        if not named:
            raise UnknownNameError(
                f"unknown case {request.case!r}",
                hint=suggest(request.case, [c.name for c in cases(kernel, keys)]),
            )
        return named
    offered = load_shaped(root, one.folder)
    if offered is None:
        if request.shape:
            raise UnsupportedError(
                f"the family in kernels/{one.folder} offers no calls by shape", hint="use --case"
            )
        return cases(kernel, keys)
    names, make = offered
    shape = _shape(request.shape, names)
    found = [make(kernel, keys, shape)]
    return found if request.shape else [*found, *cases(kernel, keys)]


def _shape(texts: Mapping[str, str], names: Mapping[str, int]) -> dict[str, int]:
    known = {*names, "window_right"} if "seqlen_q" in names else set(names)
    if unknown := sorted(set(texts) - known):
        raise UnknownNameError(f"a shape has no {unknown[0]}", hint=suggest(unknown[0], known))
    try:
        return {name: int(text) for name, text in texts.items()}
    except ValueError as error:
        raise UnsupportedError(f"a shape has whole numbers: {error}") from error
