"""Expansion of rules into jobs: for each functional, an image per setting with hints and one without."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from aotforge.plan.checks import (
    all_constants,
    argument_type,
    check_kernel,
    check_setting,
    check_shared_memory,
    check_source_name,
    passed_as,
)
from aotforge.plan.conditions import hints, tries
from aotforge.plan.context import KernelContext, read_signature
from aotforge.plan.model import (
    CompileJob,
    GridTerm,
    JobKey,
    LeftOut,
    PlannedChoice,
    PlannedFunctional,
    PlannedKernel,
    PlannedParameter,
    json_digest,
)
from aotforge.plan.selection import Keep, is_kept
from aotforge.rules import GENERAL_SUFFIX, Functional, GeneralSetting, Scalar, Setting, Target
from aotforge.targets.backend import setting_options
from aotforge.targets.backends import backend_of
from aotforge.timed_rules import TimedSetting

RECIPE = 1
"""Enters every job key: raised when this project changes how it drives the compiler."""


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """One functional for one target."""

    target: Target
    functional: Functional
    settings: tuple[Setting, ...]
    signature: dict[str, str]


def left_out(context: KernelContext, keep: Keep) -> LeftOut | None:
    """What a profile that keeps `keep` leaves out of a kernel, if anything. Raises RulesError."""
    number = len(list(_functionals(context, {}))) - len(list(_functionals(context, keep)))
    values = tuple(
        f"{choice.name}={str(value).lower() if isinstance(value, bool) else value}"
        for choice in context.kernel.choices
        for value in choice.options
        if not is_kept(keep, choice.name, value)
    )
    name = f"{context.family}.{context.kernel.name}"
    return LeftOut(kernel=name, functionals=number, values=values) if number else None


def _functionals(context: KernelContext, keep: Keep) -> Iterator[tuple[tuple[int, ...], Functional]]:
    """Key numbers and choice values that profile and constraints leave, sorted by key numbers."""
    kernel = context.kernel
    axes = [
        [
            (number, choice.name, value)
            for value, number in choice.options.items()
            if is_kept(keep, choice.name, value)
        ]
        for choice in kernel.choices
    ]
    for combination in sorted(itertools.product(*axes), key=lambda entry: [number for number, *_ in entry]):
        functional = {name: value for _, name, value in combination}
        if context.location.run("allowed", kernel.allowed, functional):
            yield tuple(number for number, *_ in combination), functional


def expand_kernel(
    context: KernelContext, targets: tuple[Target, ...], keep: Keep, *, general: bool
) -> tuple[PlannedKernel, dict[JobKey, CompileJob]]:
    """A kernel's dispatch data and jobs, in canonical order (arch, functional, setting)."""
    jobs: dict[JobKey, CompileJob] = {}
    planned: list[PlannedFunctional] = []
    layouts: set[tuple[PlannedParameter, ...]] = set()
    kernel = context.kernel
    for target, (key, functional) in itertools.product(
        targets, list(_functionals(context, {} if general else keep))
    ):
        settings = context.location.run("settings", kernel.settings, target, functional)
        if not isinstance(settings, tuple):
            raise context.location.error(f"settings return {settings!r}", cause="they must return a tuple")
        if not all(is_kept(keep, name, value) for name, value in functional.items()):
            settings = tuple(one for one in settings if isinstance(one, GeneralSetting))
        if not settings:
            continue
        cell = _Cell(
            target=target, functional=functional, settings=settings, signature=_signature(context, functional)
        )
        layouts.add(_parameters(context, cell.signature))
        if len(layouts) > 1:
            raise context.location.error(
                "argument types differ between functionals", cause="a kernel has one kernarg layout"
            )
        choices = _choices(context, cell, jobs)
        planned.append(PlannedFunctional(arch=target.arch, key=key, choices=choices))
    dispatch = PlannedKernel(
        family=context.family,
        name=kernel.name,
        operator=kernel.operator,
        step=kernel.step,
        keys=tuple(choice.key for choice in kernel.choices),
        ladder=any(choice.ladder for choice in kernel.choices),
        parameters=layouts.pop() if layouts else (),
        functionals=tuple(planned),
    )
    return dispatch, jobs


def _choices(
    context: KernelContext, cell: _Cell, jobs: dict[JobKey, CompileJob]
) -> tuple[PlannedChoice, ...]:
    arguments = context.kernel.arguments
    given = {a.name: a.divisible_by for a in arguments if a.divisible_by and a.divisible_by > 1}
    for setting in cell.settings:
        check_setting(context, setting, cell.target)
        check_shared_memory(context, cell.functional, setting, cell.target)
    choices = []
    for number, hinted, predicates in tries(cell.settings, hints(arguments)):
        setting = cell.settings[number]
        own, its_cell = context, cell
        if isinstance(setting, TimedSetting) and setting.source:
            own = _context_of(context, setting.source)
            its_cell = replace(cell, signature=_signature(own, cell.functional))
        label = _label(context, cell, f"{number}{'' if hinted else 'u'}")
        if isinstance(setting, GeneralSetting) and setting.source:
            function = f"{context.kernel.function}{GENERAL_SUFFIX}"  # the setting has all of its constants
            kernel = replace(context.kernel, function=function, constants=lambda functional: {})
            own = _context_of(replace(context, kernel=kernel), setting.source)
            its_cell = replace(cell, signature=_signature(own, cell.functional))
            label = f"{context.family}.{context.kernel.name}:{cell.target.arch}:{setting.name}:general"
        constants = all_constants(own, cell.functional, setting)
        job = _job(own, its_cell, setting, constants=constants, hints=given if hinted else {})
        job = replace(job, label=label)
        jobs.setdefault(job.key, job)
        choices.append(PlannedChoice(job=job.key, predicates=predicates, grid=_grid(context, constants)))
    return tuple(choices)


def _context_of(context: KernelContext, name: str) -> KernelContext:
    """The kernel compiled from another source. Raises RulesError where its arguments do not fit."""
    check_source_name(name, context.location)
    source = f"{context.folder}/{name}"
    own = replace(
        context,
        source=source,
        function=read_signature(context.tree, source, context.kernel.function),
        source_digest=context.tree.digest(source),
    )
    check_kernel(own)
    return own


def _job(
    context: KernelContext,
    cell: _Cell,
    setting: Setting,
    *,
    constants: dict[str, Scalar],
    hints: dict[str, int],
) -> CompileJob:
    """The job with its key and without a label; signature and constants in the function's order."""
    may_spill = isinstance(setting, TimedSetting) and setting.spills
    job = CompileJob(
        key="",
        family=context.family,
        kernel=context.kernel.name,
        label="",
        source=context.source,
        function=context.kernel.function,
        source_digest=context.source_digest,
        target=cell.target,
        signature=tuple(cell.signature.items()),
        constants=tuple(constants.items()),
        hints=tuple(hints.items()),
        options=setting_options(backend_of(cell.target.vendor), setting),
        toolchain=context.toolchain,
        spills="report" if may_spill else context.kernel.limits.spills,
        cures=context.hazards.cures(cell.target.arch, setting.num_stages, _types(context, cell)),
        aliases=context.architectures.aliases(cell.target.arch),
    )
    return with_key(job, context.toolchain_digest)


def with_key(job: CompileJob, toolchain_digest: str) -> CompileJob:
    """The job under the key that its other values give it."""
    left_out = {"key", "label", "spills"} | {name for name in ("cures", "aliases") if not getattr(job, name)}
    identity = {name: value for name, value in vars(job).items() if name not in left_out}
    identity |= {"recipe": RECIPE, "target": job.target.identity(), "toolchain": toolchain_digest}
    if compiler := backend_of(job.target.vendor).compiler_digest():
        identity["compiler"] = compiler
    return replace(job, key=json_digest(identity))


def _types(context: KernelContext, cell: _Cell) -> frozenset[str]:
    """Element types of the arguments, and every name in the kernel's source: types of the language too."""
    return frozenset(kind.lstrip("*k") for kind in cell.signature.values()) | context.tree.names(
        context.source
    )


def _label(context: KernelContext, cell: _Cell, setting: str) -> str:
    values = ",".join(f"{name}={str(value).lower()}" for name, value in cell.functional.items())
    parts = (f"{context.family}.{context.kernel.name}", cell.target.arch, values, setting)
    return ":".join(part for part in parts if part)


def _signature(context: KernelContext, functional: Functional) -> dict[str, str]:
    types = {a.name: argument_type(context, a.type, functional) for a in context.kernel.arguments}
    return {name: types.get(name, "constexpr") for name in context.function.parameters}


def _parameters(context: KernelContext, signature: dict[str, str]) -> tuple[PlannedParameter, ...]:
    return tuple(
        PlannedParameter(
            name=a.name,
            type=passed_as(context, a.name, signature[a.name], context.types[a.value]),
            value=a.value,
        )
        for a in context.kernel.arguments
    )


def _grid(context: KernelContext, constants: dict[str, Scalar]) -> tuple[tuple[GridTerm, ...], ...]:
    def divisor(wanted: int | str) -> int:
        value = constants.get(wanted) if isinstance(wanted, str) else wanted
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise context.location.error(
                f"grid divisor {wanted} is {value!r}", cause="it must be a number of at least 1"
            )
        return value

    return tuple(
        tuple(GridTerm(value=term.value, divisor=divisor(term.divisor)) for term in axis)
        for axis in context.kernel.grid
    )
