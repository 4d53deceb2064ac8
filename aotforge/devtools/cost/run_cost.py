"""Cost of images: each executed on one case, measured, and estimated."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from aotforge.base.architectures import load_architectures
from aotforge.compile.image_set import resources
from aotforge.compile.model import KernelImage, Resources
from aotforge.devtools.cost.candidates import Candidate, CostRequest, compiled, find_candidates
from aotforge.devtools.cost.model import Estimate, HotLine, estimate, hot_lines
from aotforge.devtools.cost.rates import model_of
from aotforge.devtools.cost.steps import steps_of
from aotforge.devtools.cost.timeline import PathRecorder, timeline
from aotforge.devtools.cost.work import Work, add_up
from aotforge.devtools.selection import find_case, integers, require_known
from aotforge.errors import UnsupportedError
from aotforge.targets.amd.backend import AMD, resident_workgroups
from aotforge.verify.interpreter.dispatch import Launch, launch_of, launches_of, uses_of
from aotforge.verify.invocation import Case, Invocation, load_shaped, require_cases
from vgpu.emulator.measure import Meter
from vgpu.emulator.program import Emulator, LaunchRequest, Program

_TOP = 10


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One image's work on a case, the estimate, and its busiest instructions."""

    name: str
    digest: str
    case: str
    grid: tuple[int, int, int]
    resources: Resources
    arch: str
    product: str
    work: Work
    estimate: Estimate
    hot: tuple[HotLine, ...] = ()


def cost(request: CostRequest) -> tuple[Cost, ...]:
    """Compile what is missing, run and measure each. Raises UnknownNameError, UnsupportedError, RulesError,
    ExecutionError, and what planning, compiling and loading raise."""
    model_of(request.arch)  # an arch without rates is refused before anything is compiled
    candidates = [dispatched(request, candidate) for candidate in find_candidates(request)]
    images = compiled(candidates, request)
    return tuple(
        measured(request, candidate, image) for candidate, image in zip(candidates, images, strict=True)
    )


class ProgramCost:
    """Cost of a launch that the caller makes with `meter` and the hooks of `recorder`. Raises
    UnsupportedError for an arch without rates."""

    def __init__(self, program: Program, hsaco: bytes) -> None:
        self._program, self._hsaco, self.kernel = program, hsaco, program.listing.kernel
        self._model = model_of(program.target.arch)
        self.meter = Meter(self._model.banks)
        self.recorder = PathRecorder(program.lines, program.listing.labels, program.listing.lines)

    def cost(
        self, name: str, case: str, grid: tuple[int, int, int], lds_bytes: int, *, top: int = _TOP
    ) -> Cost:
        """After the launch, with `lds_bytes` of dynamic LDS. Raises UnsupportedError, ManifestError."""
        program, model, measured = self._program, self._model, self.meter.result
        assert measured is not None
        lanes, groups = program.target.lanes, math.prod(grid)
        waves = -(-program.threads // lanes)
        stats = AMD.stats(self._hsaco, {"shared": lds_bytes, "num_warps": waves})
        architecture = load_architectures().amd[model.arch]
        steps = steps_of(measured.lines, program.effects(), model, lanes)
        times = timeline(
            steps,
            self.recorder.paths(),
            waves=waves,
            simds=model.simds,
            resident=max(1, resident_workgroups(stats, architecture)),
        )
        work = add_up(measured, workgroups=groups, waves=waves, wavefront=lanes)
        return Cost(
            name=name,
            digest=hashlib.sha256(self._hsaco).hexdigest(),
            case=case,
            grid=grid,
            resources=resources(stats, architecture),
            arch=model.arch,
            product=model.product,
            work=work,
            estimate=estimate(work, model, times),
            hot=hot_lines(measured, model, count=top),
        )


def measured(request: CostRequest, candidate: Candidate, image: KernelImage) -> Cost:
    """The cost of a candidate's image on the request's call. Raises UnsupportedError, ExecutionError."""
    case, invocation, launch = _call(request, candidate)
    program = Emulator(request.arch, cache=request.cache).load(image.binary, image.asm)
    costs, lds_bytes = ProgramCost(program, image.binary), image.resources.dynamic_shared_bytes
    arguments, memory = tuple(launch.arguments.values()), invocation.memory()
    program.launch(
        LaunchRequest(
            grid=launch.grid,
            arguments=arguments,
            memory=memory,
            lds_bytes=lds_bytes,
            meter=costs.meter,
            hooks=costs.recorder.hooks,
        )
    )
    return costs.cost(candidate.name, case, launch.grid, lds_bytes, top=request.top)


def dispatched(request: CostRequest, candidate: Candidate) -> Candidate:
    """The image that the library chooses for the call, of a kernel with the rules' settings. Raises
    UnsupportedError."""
    if not candidate.dispatched:
        return candidate
    kernel = candidate.plan.kernels[0]
    keys = dict(zip(kernel.keys, kernel.functionals[0].key, strict=True))
    for case in _cases(request, candidate, kernel.name, keys):
        for job, launch in launches_of(candidate.plan, _made(case, request.shape).values):
            if 0 not in launch.grid:
                return replace(candidate, job=job, name=f"{candidate.name} ({job.label})")
    cause = "nothing is launched for it, or no setting covers it"
    raise _not_served(f"no image of {candidate.name} serves the call", cause)


def _call(request: CostRequest, candidate: Candidate) -> tuple[str, Invocation, Launch]:
    """A call that is dispatched to the image: its case's name, data, grid and arguments."""
    archs = {job.key: job.target.arch for job in candidate.plan.jobs}
    uses = uses_of(candidate.plan, archs)[candidate.job.key]
    tried = []
    for use in uses:
        keys = dict(zip(use.kernel.keys, use.key, strict=True))
        for case in _cases(request, candidate, use.called, keys):
            tried.append(case.name)
            invocation = _made(case, request.shape)
            launch = launch_of(use, invocation.values)
            if launch is not None and 0 not in launch.grid:
                return case.name, invocation, launch
    what = f"the case {tried[0]!r}" if len(tried) == 1 else f"each of {len(tried)} cases"
    cause = "other images serve other lengths or alignments, or nothing is launched"
    raise _not_served(f"{what} is not dispatched to {candidate.name}", cause)


def _not_served(what: str, cause: str) -> UnsupportedError:
    return UnsupportedError(what, cause=cause, hint="choose another --case or --shape")


def _made(case: Case, shape: Mapping[str, str]) -> Invocation:
    """A shape of the user may be impossible: negative, or two query heads for three key heads."""
    try:
        return case.make()
    except (ArithmeticError, IndexError, ValueError) as error:
        if not shape:
            raise
        raise UnsupportedError(
            f"there is no call with {case.name}", cause=str(error), hint="choose another --shape"
        ) from error


def _cases(
    request: CostRequest, candidate: Candidate, kernel: str, keys: Mapping[str, int]
) -> Sequence[Case]:
    cases = require_cases(request.kernels, candidate.folder)(kernel, keys)
    if request.case is not None:
        return [find_case(cases, request.case)]
    offered = load_shaped(request.kernels, candidate.folder)
    if offered is None:
        if request.shape:
            raise UnsupportedError(
                f"the family in kernels/{candidate.folder} offers no calls by shape", hint="use --case"
            )
        return cases
    names, make = offered
    more = ("window_left", "window_right", "packed") if "seqlen_q" in names else ()
    require_known(request.shape, {*names, *more}, "a shape has no")
    shaped = [make(kernel, keys, integers(request.shape, "numbers of a shape"))]
    return shaped if request.shape else [*shaped, *cases]
