"""The plan of a build, made from rules, manifests and the toolchain, without Triton."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from aotforge.base.architectures import Architectures, Profile, Profiles, parse_archs
from aotforge.base.hazards import Hazards
from aotforge.errors import RulesError, UnknownNameError, UnsupportedError, suggest
from aotforge.plan.checkout import Checkout
from aotforge.plan.checks import check_family, check_kernel, check_source, check_steps
from aotforge.plan.closure import SourceTree
from aotforge.plan.context import KernelContext, RulesLocation, read_signature
from aotforge.plan.expand import expand_kernel, left_out
from aotforge.plan.families import LoadedFamily
from aotforge.plan.gates import served_gates
from aotforge.plan.model import CompileJob, JobKey, LeftOut, Plan, PlannedKernel, json_digest
from aotforge.plan.selection import ONLY_SUFFIX, Only, check_profiles, keep_of
from aotforge.rules import Operator, Target
from aotforge.toolchain.triton import Toolchain, pinned_triton, read_toolchain


def plan_project(
    checkout: Checkout,
    *,
    archs: Sequence[str],
    profile: str | None = None,
    only: Only | None = None,
    toolchain: Callable[[str], Toolchain] = read_toolchain,
) -> Plan:
    """The plan of the checkout for one pack, from its kernels/, manifests/ and requirements/build.in.

    `only` selects kernels. `toolchain` returns the compiler for the pinned version of Triton. Raises
    UnknownNameError, UnsupportedError, ManifestError, RulesError, ToolchainError.
    """
    # before the families are loaded: a misspelt name is reported at once
    select_archs(checkout.architectures, archs)
    select_profile(checkout.profiles, profile)
    check_profiles(checkout.profiles, checkout.families, checkout.manifests / "profiles.yaml")
    return make_plan(
        checkout.families,
        SourceTree(root=checkout.kernels),
        archs=archs,
        architectures=checkout.architectures,
        profiles=checkout.profiles,
        profile=profile,
        only=only,
        toolchain=toolchain(pinned_triton(checkout.root / "requirements" / "build.in")),
        hazards=checkout.hazards,
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
    hazards: Hazards,
    only: Only | None = None,
) -> Plan:
    """Expand families for the archs of one pack. Raises UnknownNameError, UnsupportedError, RulesError."""
    pack, targets = select_archs(architectures, archs)
    name, kept = select_profile(profiles, profile)
    served = ", ".join(target.arch for target in targets)
    all_operators = _operators(families)
    kernels: list[PlannedKernel] = []
    jobs: dict[JobKey, CompileJob] = {}
    absent: list[LeftOut] = []
    selected = (only or Only()).kernels(
        (f.family.name, k.name, k.operator) for f in families for k in f.family.kernels
    )
    for context in _contexts(families, tree, all_operators, toolchain, (architectures, hazards)):
        if (context.family, context.kernel.name) not in selected:
            continue
        keep = keep_of(kept.keep, context.family)
        if less := left_out(context, keep):
            absent.append(less)
        planned, found = expand_kernel(context, targets, keep, general=kept.general)
        if planned.functionals:
            kernels.append(planned)
            jobs.update(found)
    _check_served_steps(families, kernels, selected)
    if not jobs:
        raise UnsupportedError(
            f"profile {name} has no image for {served}",
            cause="no kernel family has a setting for these archs",
            hint="add settings to kernels/<family>/rules.py, or build for another arch",
        )
    used = {kernel.operator for kernel in kernels}
    operators = tuple(operator for operator in all_operators.values() if operator.name in used)
    settings = {
        "operators": [operator.interface() for operator in operators],
        "profile": {"name": name, **kept.model_dump(mode="json")},
        "kernels": list(_without_keys(kernels, jobs)),
        "jobs": [
            [j.label, j.target.arch, j.signature, j.constants, j.hints, j.options, j.spills]
            for j in jobs.values()
        ],
    }
    return Plan(
        pack=pack,
        archs=tuple(target.arch for target in targets),
        profile=f"{name}{ONLY_SUFFIX}" if only and only.names else name,
        complete=kept.complete and not (only and only.names),
        operators=operators,
        jobs=tuple(jobs.values()),
        kernels=tuple(kernels),
        source_digest=json_digest(sorted({(j.source, j.function, j.source_digest) for j in jobs.values()})),
        settings_digest=json_digest(settings),
        toolchain=toolchain,
        left_out=tuple(absent),
        gates=served_gates(
            (gate for loaded in families for gate in loaded.family.gates),
            kernels,
            [target.arch for target in targets],
        ),
    )


def _contexts(
    families: tuple[LoadedFamily, ...],
    tree: SourceTree,
    operators: dict[str, Operator],
    toolchain: Toolchain,
    manifests: tuple[Architectures, Hazards],
) -> Iterator[KernelContext]:
    """Every kernel of every family, checked, in canonical order."""
    digest = json_digest(toolchain)
    for loaded in families:
        rules = RulesLocation(file=str(tree.root / loaded.folder / "rules.py"))
        check_family(loaded.family, rules)
        for kernel in sorted(loaded.family.kernels, key=lambda entry: entry.name):
            location = replace(rules, kernel=kernel.name)
            check_source(kernel, operators, location)
            source, operator = f"{loaded.folder}/{kernel.source}", operators[kernel.operator]
            context = KernelContext(
                family=loaded.family.name,
                kernel=kernel,
                operator=operator,
                types={value.name: value.type for value in operator.values},
                tree=tree,
                folder=loaded.folder,
                source=source,
                function=read_signature(tree, source, kernel.function),
                source_digest=tree.digest(source),
                toolchain=toolchain,
                toolchain_digest=digest,
                architectures=manifests[0],
                hazards=manifests[1],
                location=location,
            )
            check_kernel(context)
            yield context
        check_steps(loaded.family, rules)


def _check_served_steps(
    families: tuple[LoadedFamily, ...], kernels: list[PlannedKernel], selected: frozenset[tuple[str, str]]
) -> None:
    """An operator is served with all its selected steps or not at all."""
    for name in _operators(families):
        wanted = {
            kernel.step
            for loaded in families
            for kernel in loaded.family.kernels
            if kernel.operator == name and (loaded.family.name, kernel.name) in selected
        }
        found = {kernel.step for kernel in kernels if kernel.operator == name}
        if found and found != wanted:
            raise UnsupportedError(
                f"operator {name} would have steps {sorted(found)} of {sorted(wanted)}",
                cause="the profile or the arch's settings leave no functional of the others",
                hint="change settings or allowed in rules.py, or what the profile keeps of the family",
            )


def select_archs(architectures: Architectures, archs: Sequence[str]) -> tuple[str, tuple[Target, ...]]:
    """Pack and targets, sorted. Raises UnknownNameError, UnsupportedError for archs of different packs."""
    known = architectures.architectures
    archs = [one.arch for one in parse_archs(",".join(archs), architectures)] if archs else ()
    packs = sorted({known[arch].pack for arch in archs})
    if len(packs) != 1:
        raise UnsupportedError(
            f"archs {', '.join(archs) or '(none)'} belong to {len(packs)} packs",
            hint="make one plan for each pack",
        )
    return packs[0], tuple(known[arch].target(arch) for arch in sorted(archs))


def select_profile(profiles: Profiles, profile: str | None) -> tuple[str, Profile]:
    """A profile by name, or the default one. Raises UnknownNameError."""
    name = profile or profiles.default
    if name not in profiles.profiles:
        raise UnknownNameError(f"unknown profile {name}", hint=suggest(name, profiles.profiles))
    return name, profiles.profiles[name]


def _operators(families: Iterable[LoadedFamily]) -> dict[str, Operator]:
    """Operators of all families by name, sorted."""
    found: dict[str, Operator] = {}
    for loaded in families:
        for operator in loaded.family.operators:
            if found.setdefault(operator.name, operator) != operator:
                raise RulesError(
                    f"family {loaded.family.name}: operator {operator.name} has another interface elsewhere"
                )
    return dict(sorted(found.items()))


def _without_keys(kernels: list[PlannedKernel], jobs: dict[JobKey, CompileJob]) -> Iterator[PlannedKernel]:
    """Dispatch data with labels for keys: the settings' digest must not change with the kernels' source."""
    for kernel in kernels:
        functionals = (
            replace(f, choices=tuple(replace(choice, job=jobs[choice.job].label) for choice in f.choices))
            for f in kernel.functionals
        )
        yield replace(kernel, functionals=tuple(functionals))
