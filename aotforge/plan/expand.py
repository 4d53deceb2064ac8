"""Rules to jobs: every functional, every setting, one image each, and one more without hints (see aotforge/rules.py)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aotforge.plan.checks import (
    Place,
    all_constants,
    argument_type,
    check_conversion,
    check_setting,
    passed_as,
    run_rule,
)
from aotforge.plan.jobs import KernelContext, make_job
from aotforge.plan.model import (
    CompileJob,
    GridTerm,
    JobKey,
    PlannedChoice,
    PlannedFunctional,
    PlannedKernel,
    PlannedParameter,
    Predicate,
)
from aotforge.rules import Functional, Kernel, Scalar, Setting, Target

Keep = Mapping[str, tuple[Scalar, ...]]


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """One functional for one target."""

    target: Target
    functional: Functional
    settings: tuple[Setting, ...]
    signature: dict[str, str]


def same(left: Scalar, right: Scalar) -> bool:
    """Equality that tells True from 1, as Python's does not."""
    return type(left) is type(right) and left == right


def functionals(kernel: Kernel, keep: Keep, place: Place) -> Iterator[tuple[tuple[int, ...], Functional]]:
    """Key numbers and choice values that profile and constraints leave, sorted by key numbers."""
    axes = []
    for choice in kernel.choices:
        kept = keep.get(choice.name)
        axes.append(
            [
                (number, value)
                for value, number in choice.options.items()
                if kept is None or any(same(value, wanted) for wanted in kept)
            ]
        )
    for combination in sorted(
        itertools.product(*axes), key=lambda entry: tuple(number for number, _ in entry)
    ):
        functional = {
            choice.name: value for choice, (_, value) in zip(kernel.choices, combination, strict=True)
        }
        if run_rule(place, "allowed", kernel.allowed, functional):
            yield tuple(number for number, _ in combination), functional


def expand_kernel(
    context: KernelContext, targets: tuple[Target, ...], keep: Keep
) -> tuple[PlannedKernel, dict[JobKey, CompileJob]]:
    """A kernel's dispatch data and jobs, in canonical order (arch, functional, setting). Raises RulesError."""
    jobs: dict[JobKey, CompileJob] = {}
    planned: list[PlannedFunctional] = []
    parameters: tuple[PlannedParameter, ...] | None = None
    kernel = context.kernel
    kept = list(functionals(kernel, keep, context.place))
    for target in targets:
        for key, functional in kept:
            settings = run_rule(context.place, "settings", kernel.settings, target, functional)
            if not isinstance(settings, tuple):
                raise context.place.error(f"settings return {settings!r}", cause="a tuple is needed")
            if not settings:
                continue
            signature = _signature(context, functional)
            found = _parameters(context, signature)
            if parameters is not None and found != parameters:
                raise context.place.error(
                    "argument types differ between functionals", cause="kernarg layouts must be one"
                )
            parameters = found
            cell = _Cell(target=target, functional=functional, settings=settings, signature=signature)
            choices = _choices(context, cell, jobs)
            planned.append(PlannedFunctional(arch=target.arch, key=key, choices=choices))
    return (
        PlannedKernel(
            family=context.family.name,
            name=kernel.name,
            operator=kernel.operator,
            step=kernel.step,
            keys=tuple(choice.key for choice in kernel.choices),
            parameters=parameters or (),
            functionals=tuple(planned),
        ),
        jobs,
    )


def _choices(
    context: KernelContext, cell: _Cell, jobs: dict[JobKey, CompileJob]
) -> tuple[PlannedChoice, ...]:
    hints = {
        a.name: a.divisible_by for a in context.kernel.arguments if a.divisible_by and a.divisible_by > 1
    }
    values = {a.name: a.value for a in context.kernel.arguments}
    aligned = tuple(
        dict.fromkeys(Predicate(value=values[name], kind="multiple", low=low) for name, low in hints.items())
    )
    # the last setting once more without hints serves what is not aligned
    tries = [(number, setting, True) for number, setting in enumerate(cell.settings)]
    tries.append((len(cell.settings) - 1, cell.settings[-1], False))
    choices: dict[tuple[Predicate, ...], PlannedChoice] = {}
    for number, setting, hinted in tries:
        if not isinstance(setting, Setting):
            raise context.place.error(f"settings offer {setting!r}", cause="rules.Setting values are needed")
        check_setting(setting, context.types, cell.target.wavefront, context.place)
        when = tuple(Predicate(value=b.value, kind="range", low=b.low, high=b.high) for b in setting.when)
        predicates = (*when, *(aligned if hinted else ()))
        if predicates in choices:
            continue  # an earlier image serves exactly the same calls
        constants = all_constants(context.kernel, cell.functional, setting, context.function, context.place)
        job = make_job(
            context,
            target=cell.target,
            label=_label(context, cell, f"{number}{'' if hinted else 'u'}"),
            signature=cell.signature,
            constants=constants,
            hints=hints if hinted else {},
            setting=setting,
        )
        jobs.setdefault(job.key, job)
        choices[predicates] = PlannedChoice(
            job=job.key, predicates=predicates, grid=_grid(context, constants)
        )
    return tuple(choices.values())


def _label(context: KernelContext, cell: _Cell, setting: str) -> str:
    values = ",".join(f"{name}={str(value).lower()}" for name, value in cell.functional.items())
    parts = (f"{context.family.name}.{context.kernel.name}", cell.target.arch, values, setting)
    return ":".join(part for part in parts if part)


def _signature(context: KernelContext, functional: Functional) -> dict[str, str]:
    types = {a.name: argument_type(a.type, functional, context.place) for a in context.kernel.arguments}
    return {name: types.get(name, "constexpr") for name in context.function.parameters}


def _parameters(context: KernelContext, signature: dict[str, str]) -> tuple[PlannedParameter, ...]:
    parameters = []
    for argument in context.kernel.arguments:
        passed = passed_as(signature[argument.name])
        check_conversion(argument.name, passed, context.types[argument.value], context.place)
        parameters.append(PlannedParameter(name=argument.name, type=passed, value=argument.value))
    return tuple(parameters)


def _grid(context: KernelContext, constants: dict[str, Scalar]) -> tuple[tuple[GridTerm, ...], ...]:
    def divisor(wanted: int | str) -> int:
        value = constants.get(wanted) if isinstance(wanted, str) else wanted
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise context.place.error(
                f"grid divisor {wanted} is {value!r}", cause="a number of at least 1 is needed"
            )
        return value

    return tuple(
        tuple(GridTerm(value=term.value, divisor=divisor(term.divisor)) for term in axis)
        for axis in context.kernel.grid
    )
