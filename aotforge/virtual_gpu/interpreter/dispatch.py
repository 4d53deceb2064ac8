"""Dispatch of a call: the first setting whose predicates hold, from rules or from a plan."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from aotforge.errors import RulesError, UnsupportedError
from aotforge.plan.conditions import hints, tries
from aotforge.plan.model import GridTerm, JobKey, Plan, PlannedChoice, PlannedKernel, Predicate
from aotforge.rules import Choice, Functional, Kernel, Scalar, Setting, Target

Values = Mapping[str, int | float]
"""Operator values by name; pointers are addresses."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Grid, and arguments by parameter name in the kernel's order. An axis of 0: the library launches nothing."""

    grid: tuple[int, int, int]
    arguments: Values


@dataclass(frozen=True, kw_only=True)
class SourceLaunch(Launch):
    """A launch of a kernel's source. `types` by parameter name; `hinted`: every argument hint holds."""

    kernel: Kernel
    functional: Functional
    setting: Setting
    hinted: bool
    constants: Mapping[str, Scalar]
    types: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Use:
    """One way in which a plan dispatches to an image: the choice at `index` of a functional."""

    kernel: PlannedKernel
    key: tuple[int, ...]
    choices: tuple[PlannedChoice, ...]
    index: int


def uses_of(plan: Plan, arch_of: Mapping[JobKey, str]) -> dict[JobKey, tuple[Use, ...]]:
    """Every way in which the plan dispatches to each image, in the plan's order."""
    found: dict[JobKey, list[Use]] = {key: [] for key in arch_of}
    for kernel in plan.kernels:
        for functional in kernel.functionals:
            for index, choice in enumerate(functional.choices):
                if arch_of.get(choice.job) == functional.arch:
                    found[choice.job].append(
                        Use(kernel=kernel, key=functional.key, choices=functional.choices, index=index)
                    )
    return {key: tuple(uses) for key, uses in found.items()}


def launch_of(use: Use, values: Values) -> Launch | None:
    """The launch of that image, or None when another image serves the call. Raises RulesError for a missing value."""
    call = _Call(use.kernel.name, values)
    if tuple(int(call[name]) for name in use.kernel.keys) != use.key:
        return None
    if call.first_match(choice.predicates for choice in use.choices) != use.index:
        return None
    return Launch(
        grid=call.grid(use.choices[use.index].grid),
        arguments={p.name: (float if p.type == "f32" else int)(call[p.value]) for p in use.kernel.parameters},
    )


def select(
    kernel: Kernel, target: Target, values: Values, *, override: Mapping[str, Scalar] | None = None
) -> SourceLaunch:
    """The launch that serves a call by the kernel's rules.

    `override` replaces constants of the selected setting, such as block sizes, so that a test reaches every loop with
    few elements. Raises UnsupportedError when the rules do not cover the call, RulesError for a missing value.
    """
    call = _Call(kernel.name, values)
    functional = {choice.name: _option(call, choice) for choice in kernel.choices}
    text = ", ".join(f"{name} {value}" for name, value in functional.items())
    if not kernel.allowed(functional):
        raise UnsupportedError(f"{kernel.name} does not serve {text}")
    settings = kernel.settings(target, functional)
    offered = list(tries(settings, hints(kernel.arguments)))
    index = call.first_match(predicates for _, _, predicates in offered)
    if index is None:
        raise UnsupportedError(f"{kernel.name} has no setting on {target.arch} for {text}")
    number, hinted, _ = offered[index]
    setting = settings[number]
    changed = {name: value for name, value in (override or {}).items() if name in setting.constants}
    constants = {**kernel.constants(functional), **setting.constants, **changed}

    def divisor(wanted: int | str) -> int:
        return int(constants[wanted]) if isinstance(wanted, str) else wanted

    return SourceLaunch(
        kernel=kernel,
        functional=functional,
        setting=setting,
        hinted=hinted,
        constants=constants,
        types={a.name: a.type.format(**functional) for a in kernel.arguments},
        arguments={a.name: call[a.value] for a in kernel.arguments},
        grid=call.grid(
            [[GridTerm(value=t.value, divisor=divisor(t.divisor)) for t in axis] for axis in kernel.grid]
        ),
    )


@dataclass(frozen=True)
class _Call:
    """A call of a kernel's operator."""

    kernel: str
    values: Values

    def __getitem__(self, name: str) -> int | float:
        if name not in self.values:
            raise RulesError(
                f"a call of {self.kernel} lacks the value {name}",
                cause="the operator has the value, and the case does not set it",
                hint="add it to the call in the family's cases.py",
            )
        return self.values[name]

    def first_match(self, offered: Iterable[Sequence[Predicate]]) -> int | None:
        return next((i for i, every in enumerate(offered) if all(map(self._holds, every))), None)

    def _holds(self, predicate: Predicate) -> bool:
        product = math.prod(int(self[value]) for value in predicate.values)
        if predicate.kind == "multiple":
            return product % predicate.low == 0
        return predicate.low <= product <= predicate.high

    def grid(self, axes: Sequence[Sequence[GridTerm]]) -> tuple[int, int, int]:
        sizes = [math.prod(-(-int(self[t.value]) // t.divisor) for t in axis) for axis in axes]
        x, y, z = (*sizes, 1, 1, 1)[:3]
        return x, y, z


def _option(call: _Call, choice: Choice) -> Scalar:
    number = call[choice.key]
    for option, key in choice.options.items():
        if key == number:
            return option
    raise UnsupportedError(
        f"{call.kernel} does not serve {choice.key} = {number}",
        hint=f"it serves {', '.join(f'{key} ({option})' for option, key in choice.options.items())}",
    )
