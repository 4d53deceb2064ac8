"""Which image of a plan serves a call, and with which arguments: the dispatch data of the pack, read as the library does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from aotforge.errors import RulesError
from aotforge.plan.model import JobKey, Plan, PlannedChoice, Predicate
from aotforge.verify.verdict import Use

Values = Mapping[str, int | float]


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Grid and arguments in the kernel's order. An axis of 0 means that the library launches nothing."""

    grid: tuple[int, int, int]
    arguments: tuple[int | float, ...]


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
    """The launch of that image, or None when the call goes elsewhere. Raises RulesError for a value that the call lacks."""
    keys = tuple(int(_value(use, values, name)) for name in use.kernel.keys)
    if keys != use.key:
        return None
    index = next(
        (i for i, c in enumerate(use.choices) if all(_holds(use, p, values) for p in c.predicates)), None
    )
    if index != use.index:
        return None
    choice = use.choices[index]
    return Launch(grid=_grid(use, choice, values), arguments=tuple(
        float(_value(use, values, p.value)) if p.type == "f32" else int(_value(use, values, p.value))
        for p in use.kernel.parameters
    ))  # fmt: skip


def _holds(use: Use, predicate: Predicate, values: Values) -> bool:
    value = int(_value(use, values, predicate.value))
    if predicate.kind == "multiple":
        return value % predicate.low == 0
    return predicate.low <= value <= predicate.high


def _grid(use: Use, choice: PlannedChoice, values: Values) -> tuple[int, int, int]:
    axes = [
        math.prod(-(-int(_value(use, values, term.value)) // term.divisor) for term in axis)
        for axis in choice.grid
    ]
    x, y, z = (*axes, 1, 1, 1)[:3]
    return x, y, z


def _value(use: Use, values: Values, name: str) -> int | float:
    if name not in values:
        raise RulesError(
            f"a case of {use.kernel.family}.{use.kernel.name} lacks the value {name}",
            hint=f"add it to the case in kernels/{use.kernel.family}/cases.py",
        )
    return values[name]
