"""Which configuration serves a call, as the library would choose it from the plan: a pure function of rules,
chip and values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from aotforge.errors import UnsupportedError
from aotforge.rules import Argument, Choice, Functional, Kernel, Scalar, Setting, Target, Term

Values = Mapping[str, int | float]
"""Operator values by name; pointers are addresses."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One kernel launch. `types` and `arguments` are by parameter name in order; `hinted` when every argument
    hint holds.
    """

    kernel: Kernel
    functional: Functional
    setting: Setting
    hinted: bool
    constants: Mapping[str, Scalar]
    types: Mapping[str, str]
    arguments: Mapping[str, int | float]
    grid: tuple[int, int, int]


def select(
    kernel: Kernel, chip: Target, values: Values, *, override: Mapping[str, Scalar] | None = None
) -> Launch:
    """The launch that serves a call.

    `override` replaces constants that the chosen setting has, such as block sizes, so that a test reaches
    every loop with few elements. Raises UnsupportedError when the rules cover no such call or a value is
    missing.
    """
    functional = {choice.name: _option(kernel, choice, values) for choice in kernel.choices}
    if not kernel.allowed(functional):
        raise UnsupportedError(f"{kernel.name} does not serve {_text(functional)}")
    settings = kernel.settings(chip, functional)
    hinted = all(_aligned(argument, values) for argument in kernel.arguments)
    # the fallback without hints exists for the last setting only
    offered = settings if hinted else settings[-1:]
    setting = next((s for s in offered if _holds(s, values)), None)
    if setting is None:
        raise UnsupportedError(f"{kernel.name} has no setting on {chip.arch} for {_text(functional)}")
    constants = {**kernel.constants(functional), **setting.constants}
    constants.update({name: value for name, value in (override or {}).items() if name in setting.constants})
    return Launch(
        kernel=kernel,
        functional=functional,
        setting=setting,
        hinted=hinted,
        constants=constants,
        types={a.name: a.type.format(**functional) for a in kernel.arguments},
        arguments={a.name: _value(values, a.value, kernel) for a in kernel.arguments},
        grid=_grid(kernel, constants, values),
    )


def _option(kernel: Kernel, choice: Choice, values: Values) -> Scalar:
    number = _value(values, choice.key, kernel)
    for option, key in choice.options.items():
        if key == number:
            return option
    raise UnsupportedError(
        f"{kernel.name} does not serve {choice.key} = {number}",
        hint=f"it serves {', '.join(f'{key} ({option})' for option, key in choice.options.items())}",
    )


def _value(values: Values, name: str, kernel: Kernel) -> int | float:
    if name not in values:
        raise UnsupportedError(f"{kernel.name} needs the value {name}, and the call does not have it")
    return values[name]


def _aligned(argument: Argument, values: Values) -> bool:
    if argument.divisible_by is None:
        return True
    return int(values.get(argument.value, 0)) % argument.divisible_by == 0


def _holds(setting: Setting, values: Values) -> bool:
    return all(p.low <= values[p.value] <= p.high for p in setting.when)


def _grid(kernel: Kernel, constants: Mapping[str, Scalar], values: Values) -> tuple[int, int, int]:
    def factor(term: Term) -> int:
        divisor = constants[term.divisor] if isinstance(term.divisor, str) else term.divisor
        return -(-int(_value(values, term.value, kernel)) // int(divisor))

    axes = [math.prod(factor(term) for term in axis) for axis in kernel.grid]
    x, y, z = (*axes, 1, 1, 1)[:3]
    return x, y, z


def _text(functional: Functional) -> str:
    return ", ".join(f"{name} {value}" for name, value in functional.items())
