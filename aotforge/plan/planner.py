"""The plan of a build, made from rules, manifests and the toolchain; nothing compiles, Triton is not imported."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from aotforge.base.architectures import (
    Architectures,
    Profile,
    Profiles,
    load_architectures,
    load_profiles,
)
from aotforge.base.manifest_reader import line_of
from aotforge.errors import ManifestError, RulesError, UnknownNameError, UnsupportedError, suggest
from aotforge.plan.checks import Place, check_family, check_kernel, check_source, check_steps
from aotforge.plan.closure import SourceTree
from aotforge.plan.expand import expand_kernel, same
from aotforge.plan.families import LoadedFamily, load_families
from aotforge.plan.jobs import KernelContext, canonical_json, toolchain_digest
from aotforge.plan.model import CompileJob, JobKey, Plan, PlannedKernel
from aotforge.plan.signature import read_signature
from aotforge.rules import Operator, Target
from aotforge.toolchain.triton import Toolchain, pinned_triton, read_toolchain


def plan_project(
    root: Path,
    *,
    archs: Sequence[str],
    profile: str | None = None,
    toolchain: Callable[[str], Toolchain] = read_toolchain,
) -> Plan:
    """The plan of the project in `root` for one pack: kernels/, manifests/ and requirements/build.in are read there.

    `toolchain` tells what compiles, given the pinned version of Triton: this machine's, or what a container has.

    Raises UnknownNameError, UnsupportedError, ManifestError, RulesError, ToolchainError.
    """
    manifests = root / "manifests"
    architectures = load_architectures(manifests)
    profiles = load_profiles(manifests)
    # names first: a typing error is answered before anything slow
    select_archs(architectures, archs)
    select_profile(profiles, profile)
    families = load_families(root / "kernels")
    check_profiles(profiles, families, manifests / "profiles.yaml")
    return make_plan(
        families,
        SourceTree(root=root / "kernels"),
        archs=archs,
        architectures=architectures,
        profiles=profiles,
        profile=profile,
        toolchain=toolchain(pinned_triton(root / "requirements" / "build.in")),
    )


def make_plan(
    families: tuple[LoadedFamily, ...],
    tree: SourceTree,
    *,
    archs: Sequence[str],
    architectures: Architectures,
    profiles: Profiles,
    profile: str | None,
    toolchain: Toolchain,
) -> Plan:
    """Expand families for chips of one pack. Raises UnknownNameError, UnsupportedError, RulesError."""
    pack, chips = select_archs(architectures, archs)
    name, kept = select_profile(profiles, profile)
    kernels, jobs = _expand(families, tree, chips, kept, toolchain)
    if not jobs:
        raise UnsupportedError(
            f"profile {name} has no image for {', '.join(chip.arch for chip in chips)}",
            cause="no kernel family offers a setting for these chips",
            hint="add settings to kernels/<family>/rules.py, or build another chip",
        )
    served = {kernel.operator for kernel in kernels}
    operators = tuple(op for op in _operators(families) if op.name in served)
    digests = sorted({(job.source, job.function, job.source_digest) for job in jobs.values()})
    settings = {
        "operators": [operator.interface() for operator in operators],
        "profile": {"name": name, **kept.model_dump(mode="json")},
        "kernels": [asdict(kernel) for kernel in _without_keys(kernels, jobs)],
        "jobs": [
            [j.label, j.target.arch, j.signature, j.constants, j.hints, j.options, j.spills]
            for j in jobs.values()
        ],
    }
    return Plan(
        pack=pack,
        archs=tuple(chip.arch for chip in chips),
        profile=name,
        complete=kept.complete,
        operators=operators,
        jobs=tuple(jobs.values()),
        kernels=kernels,
        source_digest=_digest(digests),
        settings_digest=_digest(settings),
        toolchain=toolchain,
    )


def _expand(
    families: tuple[LoadedFamily, ...],
    tree: SourceTree,
    chips: tuple[Target, ...],
    kept: Profile,
    toolchain: Toolchain,
) -> tuple[tuple[PlannedKernel, ...], dict[JobKey, CompileJob]]:
    operators = {operator.name: operator for operator in _operators(families)}
    digest = toolchain_digest(toolchain)
    kernels: list[PlannedKernel] = []
    jobs: dict[JobKey, CompileJob] = {}
    for loaded in families:
        place = Place(file=str(tree.root / loaded.folder / "rules.py"))
        check_family(loaded.family, place)
        for kernel in sorted(loaded.family.kernels, key=lambda entry: entry.name):
            source = f"{loaded.folder}/{kernel.source}"
            here = Place(file=place.file, kernel=kernel.name)
            check_source(kernel, here)
            function = read_signature(tree, source, kernel.function)
            check_kernel(kernel, operators, function, here)
            context = KernelContext(
                family=loaded.family,
                kernel=kernel,
                operator=operators[kernel.operator],
                types={value.name: value.type for value in operators[kernel.operator].values},
                source=source,
                function=function,
                source_digest=tree.digest(source),
                toolchain=toolchain,
                toolchain_digest=digest,
                place=here,
            )
            planned, found = expand_kernel(context, chips, kept.keep)
            if planned.functionals:
                kernels.append(planned)
                jobs.update(found)
        check_steps(loaded.family, place)
    _check_steps(families, kernels)
    return tuple(kernels), jobs


def _check_steps(families: tuple[LoadedFamily, ...], kernels: list[PlannedKernel]) -> None:
    """An operator is served with all its steps or not at all."""
    for operator in _operators(families):
        wanted = {k.step for loaded in families for k in loaded.family.kernels if k.operator == operator.name}
        found = {kernel.step for kernel in kernels if kernel.operator == operator.name}
        if found and found != wanted:
            raise UnsupportedError(
                f"operator {operator.name} would have steps {sorted(found)} of {sorted(wanted)}",
                cause="the profile or the chip's settings leave no functional of the others",
            )


def select_archs(architectures: Architectures, archs: Sequence[str]) -> tuple[str, tuple[Target, ...]]:
    """Pack and chips, sorted. Raises UnknownNameError, and UnsupportedError for chips of different packs."""
    known = architectures.architectures
    for arch in archs:
        if arch not in known:
            raise UnknownNameError(f"unknown chip {arch}", hint=suggest(arch, known))
    packs = sorted({known[arch].pack for arch in archs})
    if len(packs) != 1:
        raise UnsupportedError(
            f"chips {', '.join(archs) or '(none)'} go into {len(packs)} packs", hint="make one plan per pack"
        )
    return packs[0], tuple(known[arch].chip(arch) for arch in sorted(set(archs)))


def select_profile(profiles: Profiles, profile: str | None) -> tuple[str, Profile]:
    """A profile by name, or the default one. Raises UnknownNameError."""
    name = profile or profiles.default
    if name not in profiles.profiles:
        raise UnknownNameError(f"unknown profile {name}", hint=suggest(name, profiles.profiles))
    return name, profiles.profiles[name]


def check_profiles(profiles: Profiles, families: tuple[LoadedFamily, ...], file: Path) -> None:
    """Refuse profile entries that look misspelt: a choice near a known one, a value that no kernel offers."""
    options: dict[str, list[object]] = {}
    for choice in (c for loaded in families for kernel in loaded.family.kernels for c in kernel.choices):
        options.setdefault(choice.name, []).extend(choice.options)
    for name, profile in profiles.profiles.items():
        for choice_name, values in profile.keep.items():
            place = ("profiles", name, "keep", choice_name)
            if choice_name not in options:
                hint = suggest(choice_name, options)
                if hint.startswith("perhaps"):
                    raise ManifestError(
                        f"{file}:{line_of(file, place)}: {'.'.join(place)}: unknown choice", hint=hint
                    )
                continue
            for value in values:
                if not any(
                    same(value, option) for option in options[choice_name] if isinstance(option, int | str)
                ):
                    raise ManifestError(
                        f"{file}:{line_of(file, place)}: {'.'.join(place)}: no kernel offers {value!r}",
                        hint=f"offered: {', '.join(sorted({repr(option) for option in options[choice_name]}))}",
                    )


def _operators(families: Iterable[LoadedFamily]) -> tuple[Operator, ...]:
    found: dict[str, Operator] = {}
    for loaded in families:
        for operator in loaded.family.operators:
            if found.setdefault(operator.name, operator) != operator:
                raise RulesError(
                    f"family {loaded.family.name}: operator {operator.name} has another interface elsewhere"
                )
    return tuple(found[name] for name in sorted(found))


def _without_keys(kernels: tuple[PlannedKernel, ...], jobs: dict[JobKey, CompileJob]) -> list[PlannedKernel]:
    """Dispatch data with labels for keys: settings must not change when only the kernels' source does."""
    return [
        replace(
            kernel,
            functionals=tuple(
                replace(f, choices=tuple(replace(choice, job=jobs[choice.job].label) for choice in f.choices))
                for f in kernel.functionals
            ),
        )
        for kernel in kernels
    ]


def _digest(value: object) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
