"""Images of a cost request: of a profile, or of a kernel with the user's settings."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aotforge.base.architectures import Profile, Profiles, load_architectures
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan, find_job
from aotforge.compile.model import KernelImage
from aotforge.devtools.selection import choose, find_kernel, require_known
from aotforge.errors import CompileError, ResourceError, UnknownNameError, UnsupportedError
from aotforge.plan.checkout import Checkout
from aotforge.plan.closure import SourceTree
from aotforge.plan.families import LoadedFamily
from aotforge.plan.model import CompileJob, JobKey, Plan
from aotforge.plan.planner import make_plan, plan_project
from aotforge.rules import Functional, Kernel, Scalar, Setting, Target
from aotforge.toolchain.triton import pinned_triton, read_toolchain

_KEY = re.compile(r"[0-9a-f]{8,}")
_OPTIONS = ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack")


@dataclass(frozen=True, kw_only=True)
class CostRequest:
    """`images`: labels, digits of keys, or kernels; `settings` are of the first, a kernel. `case` by name, or
    `shape`; neither: a typical call. The first image is what the others are compared with. `top` busiest
    instructions are listed. `restricted`: an image of `settings` is for the calls of the setting that it
    changes; else it is for every call."""

    root: Path
    cache: Path
    images: tuple[str, ...]
    arch: str
    profile: str | None = None
    settings: tuple[Mapping[str, str], ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    case: str | None = None
    shape: Mapping[str, str] = field(default_factory=dict)
    top: int = 0
    restricted: bool = False

    @property
    def kernels(self) -> Path:
        """The kernels root."""
        return self.root / "kernels"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A job of a plan, `name` for reports; `folder` is its family's, `setting` what the user changed.

    `dispatched`: the call decides which job of the plan it is, `job` is then any of them.
    """

    name: str
    plan: Plan
    job: CompileJob
    folder: str
    dispatched: bool = False
    setting: Mapping[str, str] = field(default_factory=dict)


def find_candidates(request: CostRequest) -> list[Candidate]:
    """All images of a request. Raises UnknownNameError, UnsupportedError and what planning raises."""
    candidates = []
    for number, name in enumerate(request.images):
        settings = request.settings if number == 0 else ()
        try:
            kernel = find_kernel(request.root, name)
        except UnknownNameError:
            if ":" not in name and not _KEY.fullmatch(name):
                raise
            if settings:
                hint = "name the kernel, e.g. attn_fwd"
                raise UnsupportedError(
                    f"{name} is an image, and settings are a kernel's", hint=hint
                ) from None
            candidates.append(_find_image(request, name))
        else:
            candidates += [_with_setting(request, kernel, setting) for setting in settings or ({},)]
    return candidates


def compiled(candidates: Sequence[Candidate], request: CostRequest) -> list[KernelImage]:
    """The images, from the cache or compiled into it. Spills are reported in their resources, not refused."""
    with Cache(request.cache) as opened:
        return [_compile([candidate], request, opened)[candidate.job.key] for candidate in candidates]


def compile_together(candidates: Sequence[Candidate], request: CostRequest) -> None:
    """Compile into the cache what it lacks, in several processes. Candidates that do not compile, or need too
    much, are left out."""
    with Cache(request.cache) as opened, suppress(CompileError, ResourceError):
        _compile(candidates, request, opened)


def _compile(
    candidates: Sequence[Candidate], request: CostRequest, cache: Cache
) -> Mapping[JobKey, KernelImage]:
    jobs = tuple(
        {candidate.job.key: replace(candidate.job, spills="report") for candidate in candidates}.values()
    )
    return compile_plan(
        replace(candidates[0].plan, jobs=jobs),
        kernels_root=request.kernels,
        architectures=load_architectures(request.root / "manifests"),
        cache=cache,
    )


def _find_image(request: CostRequest, name: str) -> Candidate:
    """An image by job label, or by at least eight digits of the job's key."""
    checkout = Checkout(request.root)
    plan = plan_project(checkout, archs=[request.arch], profile=request.profile)
    job = find_job([plan], name)
    folder = next(item.folder for item in checkout.families if item.family.name == job.family)
    return Candidate(name=job.label, plan=plan, job=job, folder=folder)


def _with_setting(
    request: CostRequest, named: tuple[LoadedFamily, Kernel], setting: Mapping[str, str]
) -> Candidate:
    """A kernel for one functional by the rules' settings, or the changed one with `setting`."""
    loaded, kernel = named
    functional = choose(kernel, request.keys)
    checkout, chosen = Checkout(request.root), offered_settings(request, kernel, functional)[1]
    if setting:
        last = changed_setting(chosen)
        made = changed(last, setting, kernel.name)
        when = replace(made, when=last.when, unaligned=not last.hinted)
        chosen = (when if request.restricted else made,)
    # a family of this kernel alone, so that the plan has nothing else to serve
    alone = replace(kernel, settings=lambda target, functional: chosen, step=0)
    operators = tuple(o for o in loaded.family.operators if o.name == kernel.operator)
    family = replace(loaded.family, kernels=(alone,), operators=operators)
    keep: dict[str, tuple[Scalar, ...]] = {name: (value,) for name, value in functional.items()}
    profile = Profile(description="one functional", complete=False, keep=keep)
    plan = make_plan(
        (replace(loaded, family=family),),
        SourceTree(root=request.kernels),
        archs=[request.arch],
        architectures=checkout.architectures,
        profiles=Profiles.model_validate({"schema": 1, "default": "cost", "profiles": {"cost": profile}}),
        profile="cost",
        toolchain=read_toolchain(pinned_triton(request.root / "requirements" / "build.in")),
        hazards=checkout.hazards,
    )
    text = ", ".join(f"{name}={value}" for name, value in setting.items())
    name = f"{kernel.name} ({text})" if text else kernel.name
    return Candidate(
        name=name,
        plan=plan,
        job=plan.jobs[0],
        folder=loaded.folder,
        dispatched=not setting,
        setting=setting,
    )


def offered_settings(
    request: CostRequest, kernel: Kernel, functional: Functional
) -> tuple[Target, tuple[Setting, ...]]:
    """The request's target, and the rules' settings for it, in order. Raises UnsupportedError without any."""
    target = load_architectures(request.root / "manifests").find(request.arch).target(request.arch)
    if offered := kernel.settings(target, functional):
        return target, offered
    raise UnsupportedError(f"{kernel.name} has no setting on {request.arch}")


def changed_setting(offered: Sequence[Setting]) -> Setting:
    """The one that the user's values change: the last with hints, which calls of a
    shape take: their tensors are aligned."""
    return next((setting for setting in reversed(offered) if setting.hinted), offered[-1])


def changed(setting: Setting, texts: Mapping[str, str], kernel: str) -> Setting:
    """A setting for every call, with some constants and options changed. Raises UnknownNameError,
    UnsupportedError."""
    known = {*_OPTIONS, *setting.constants}
    require_known(texts, known, f"{kernel} has no setting")
    if wrong := [f"{name}={text}" for name, text in texts.items() if not text.isdigit()]:
        raise UnsupportedError(f"{wrong[0]} is not an integer of at least 0")
    numbers = {name: int(text) for name, text in texts.items()}
    options: dict[str, Any] = {name: value for name, value in numbers.items() if name in _OPTIONS}
    constants: dict[str, Scalar] = {n: numbers.get(n, value) for n, value in setting.constants.items()}
    return replace(setting, constants=constants, when=(), **options)
