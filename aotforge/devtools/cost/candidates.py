"""What `invoke cost` is asked about: an image of a profile, or a kernel with settings of the user's, compiled if need be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aotforge.base.architectures import Architecture, Profile, Profiles, load_architectures
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.model import KernelImage
from aotforge.errors import UnknownNameError, UnsupportedError, suggest
from aotforge.plan.closure import SourceTree
from aotforge.plan.families import load_families
from aotforge.plan.model import CompileJob, Plan
from aotforge.plan.planner import make_plan, plan_project
from aotforge.rules import Scalar, Setting
from aotforge.toolchain.triton import pinned_triton, read_toolchain
from aotforge.verify.selection import choose, find_kernel

_OPTIONS = ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A job of a plan, `name` for reports; `folder` is its family's."""

    name: str
    plan: Plan
    job: CompileJob
    folder: str


def find_image(root: Path, name: str, *, arch: str, profile: str | None, cache: Path) -> Candidate:
    """An image by job label, or by at least eight digits of the job's key or of the image's digest, if it has been compiled.

    Raises UnknownNameError and what planning raises.
    """
    plan = plan_project(root, archs=[arch], profile=profile)
    job = next((j for j in plan.jobs if name == j.label), None)
    if job is None and len(name) >= 8:
        job = next((j for j in plan.jobs if j.key.startswith(name)), None) or _by_digest(plan, name, cache)
    if job is None:
        raise UnknownNameError(
            f"no image {name} for {arch} in profile {plan.profile}",
            cause="neither the label or key of a job, nor the digest of an image that has been compiled, nor a kernel",
            hint=suggest(name, [j.label for j in plan.jobs]),
        )
    return Candidate(name=job.label, plan=plan, job=job, folder=_folder(root, job))


def _by_digest(plan: Plan, digits: str, cache: Path) -> CompileJob | None:
    with Cache(cache) as opened:
        for job in plan.jobs:
            entry = opened.load(job.key)
            if entry is not None and entry.summary.digest.startswith(digits):
                return job
    return None


def with_setting(
    root: Path, kernel: str, setting: Mapping[str, str], *, arch: str, keys: Mapping[str, str]
) -> Candidate:
    """A kernel for one functional with the rules' last setting, changed as `setting` says: constants and compiler options by name.

    Raises UnknownNameError, UnsupportedError and what planning raises.
    """
    loaded, found = find_kernel(root, kernel)
    functional = choose(found, keys)
    architectures = load_architectures(root / "manifests")
    offered = found.settings(architectures.find(arch).target(arch), functional)
    if not offered:
        raise UnsupportedError(f"{found.name} has no setting on {arch}")
    chosen = changed(offered[-1], setting, found.name)
    # a family of this kernel alone, so that the plan has nothing else to serve
    alone = replace(found, settings=lambda chip, functional: (chosen,), step=0)
    operators = tuple(o for o in loaded.family.operators if o.name == found.operator)
    family = replace(loaded.family, kernels=(alone,), operators=operators)
    profile = Profile(
        description="one functional", complete=False, keep={n: (v,) for n, v in functional.items()}
    )
    plan = make_plan(
        (replace(loaded, family=family),),
        SourceTree(root=root / "kernels"),
        archs=[arch],
        architectures=architectures,
        profiles=Profiles.model_validate({"schema": 1, "default": "cost", "profiles": {"cost": profile}}),
        profile="cost",
        toolchain=read_toolchain(pinned_triton(root / "requirements" / "build.in")),
    )
    text = ", ".join(f"{name}={value}" for name, value in setting.items()) or "as the rules have it"
    return Candidate(name=f"{found.name} ({text})", plan=plan, job=plan.jobs[0], folder=loaded.folder)


def changed(setting: Setting, texts: Mapping[str, str], kernel: str) -> Setting:
    """A setting for every call, with some constants and options changed. Raises UnknownNameError, UnsupportedError."""
    known = {*_OPTIONS, *setting.constants}
    if unknown := sorted(set(texts) - known):
        raise UnknownNameError(f"{kernel} has no setting {unknown[0]}", hint=suggest(unknown[0], known))
    numbers: dict[str, int] = {}
    for name, text in texts.items():
        if not text.isdigit():
            raise UnsupportedError(f"{name}={text} is no whole number")
        numbers[name] = int(text)
    constants: dict[str, Scalar] = {**setting.constants}
    constants |= {name: value for name, value in numbers.items() if name in constants}
    options = {name: value for name, value in numbers.items() if name in _OPTIONS}
    return replace(setting, constants=constants, when=(), **options)


def compiled(candidates: Sequence[Candidate], root: Path, cache: Path) -> list[KernelImage]:
    """The images, from the cache or compiled into it. Spills are reported in their resources, not refused."""
    made = []
    with Cache(cache) as opened:
        for one in candidates:
            job = replace(one.job, spills="report")
            images = compile_plan(
                replace(one.plan, jobs=(job,)),
                kernels_root=root / "kernels",
                architectures=load_architectures(root / "manifests"),
                cache=opened,
            )
            made.append(images[job.key])
    return made


def architecture(root: Path, arch: str) -> Architecture:
    """The chip's figures from the manifest."""
    return load_architectures(root / "manifests").architectures[arch]


def is_kernel(root: Path, name: str) -> bool:
    """Whether a name is a kernel's."""
    try:
        find_kernel(root, name)
    except UnknownNameError:
        return False
    return True


def _folder(root: Path, job: CompileJob) -> str:
    return next(item.folder for item in load_families(root / "kernels") if item.family.name == job.family)
