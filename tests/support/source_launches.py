"""Launches of kernels' sources by the rules alone: an oracle for what plans dispatch."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.errors import RulesError, UnsupportedError
from aotforge.plan.conditions import hints, tries
from aotforge.plan.families import family_module
from aotforge.plan.model import GridTerm
from aotforge.rules import Choice, Functional, GeneralSetting, Kernel, Scalar, Setting, Target
from aotforge.timed_rules import TimedSetting
from aotforge.verify.interpreter.dispatch import KernelCall, Launch, Values
from aotforge.verify.interpreter.machine import execute
from vgpu.memory import Memory


@dataclass(frozen=True, kw_only=True)
class SourceLaunch(Launch):
    """A launch of a kernel's source. `types` by parameter name; `hinted`: every argument hint holds."""

    kernel: Kernel
    functional: Functional
    setting: Setting
    hinted: bool
    constants: Mapping[str, Scalar]
    types: Mapping[str, str]


def select(
    kernel: Kernel,
    target: Target,
    values: Values,
    *,
    override: Mapping[str, Scalar] | None = None,
    kernel_source: bool = False,
) -> SourceLaunch:
    """The launch that serves a call by the kernel's rules. Raises UnsupportedError, RulesError.

    `override` replaces constants of the setting, so that a test reaches every loop with few elements.
    `kernel_source` leaves out settings with a source of their own: Triton's interpreter has no Gluon.
    """
    call = KernelCall(kernel.name, values)
    served = [
        functional
        for options in itertools.product(*(_options(call, choice) for choice in kernel.choices))
        if kernel.allowed(functional := dict(zip((c.name for c in kernel.choices), options, strict=True)))
    ]
    if not served:
        text = ", ".join(f"{choice.key} = {call[choice.key]}" for choice in kernel.choices)
        raise UnsupportedError(f"{kernel.name} does not serve {text}")
    offering = (functional for functional in served if kernel.settings(target, functional))
    functional = next(offering, served[0])
    text = ", ".join(f"{name} {value}" for name, value in functional.items())
    settings = [
        setting
        for setting in kernel.settings(target, functional)
        if not (kernel_source and isinstance(setting, GeneralSetting | TimedSetting) and setting.source)
    ]
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


def _options(call: KernelCall, choice: Choice) -> list[Scalar]:
    """The options that serve the call's value, the preferred one first. Raises UnsupportedError."""
    number = call[choice.key]
    options = sorted(choice.options, key=choice.options.__getitem__)
    serving = [
        o for o in options if choice.options[o] == number or (choice.ladder and choice.options[o] > number)
    ]
    if serving:
        return serving
    raise UnsupportedError(
        f"{call.kernel} does not serve {choice.key} = {number}",
        hint=f"it serves {', '.join(f'{key} ({option})' for option, key in choice.options.items())}",
    )


def run_launch(launch: SourceLaunch, folder: Path, memory: Memory) -> None:
    """Run a launch selected with `kernel_source`, from the sources in `folder`. Raises RulesError without the
    function, and as `execute`."""
    kernel = launch.kernel
    function = getattr(family_module(folder, Path(kernel.source).stem), kernel.function, None)
    if function is None:
        raise RulesError(f"{folder / kernel.source} has no function {kernel.function}")
    execute(
        function,
        types_=launch.types,
        arguments=launch.arguments,
        constants=launch.constants,
        grid=launch.grid,
        memory=memory,
    )
