"""What must hold between a plan, its images and a pack before one is worth shipping."""

from __future__ import annotations

from collections import defaultdict

from aotforge.compile.model import KernelImage
from aotforge.errors import PackError
from aotforge.plan.model import Plan, PlannedKernel
from aotforge.rules import ValueType

_SIZES: dict[ValueType, int] = {"ptr": 8, "i32": 4, "i64": 8, "u64": 8, "f32": 4}
_POINTER_KIND = "global_buffer"
_VALUE_KIND = "by_value"


def check_plan(plan: Plan) -> None:
    """Every operator has all its steps, and all steps serve the same calls. Raises PackError.

    Steps of an operator may be keyed by different values; where two share key values, both must list the same
    combinations of them, else a call would find its first kernel and miss the next.
    """
    steps: dict[str, list[PlannedKernel]] = defaultdict(list)
    for kernel in plan.kernels:
        steps[kernel.operator].append(kernel)
    known = {operator.name for operator in plan.operators}
    for operator in sorted(known | set(steps)):
        kernels = sorted(steps[operator], key=lambda kernel: kernel.step)
        if (
            operator not in known
            or [kernel.step for kernel in kernels] != list(range(len(kernels)))
            or not kernels
        ):
            found = (
                ", ".join(f"{kernel.family}.{kernel.name} as step {kernel.step}" for kernel in kernels)
                or "none"
            )
            raise _incomplete(f"operator {operator} does not have kernels for steps 0, 1, 2, ...: {found}")
        for kernel in kernels:
            if not kernel.functionals:
                raise _incomplete(
                    f"{kernel.family}.{kernel.name}, step {kernel.step} of {operator}, has no functional"
                )
            _same_calls(kernels[0], kernel)
    jobs = [job.key for job in plan.jobs]
    chosen = {
        choice.job
        for kernel in plan.kernels
        for functional in kernel.functionals
        for choice in functional.choices
    }
    if len(set(jobs)) != len(jobs) or set(jobs) != chosen:
        raise _incomplete(f"{len(jobs)} compile jobs for {len(chosen)} images that calls can choose")


def check_arguments(kernel: PlannedKernel, image: KernelImage) -> int:
    """How many scratch pointers follow the planned parameters in the image's kernel arguments.

    The runtime lays parameters out in order with natural alignment; PackError when the code object wants it
    otherwise.
    """
    planned = len(kernel.parameters)
    offset = 0
    for number, argument in enumerate(image.arguments):
        pointer = number >= planned or kernel.parameters[number].type == "ptr"
        size = 8 if number >= planned else _SIZES[kernel.parameters[number].type]
        offset = -(-offset // size) * size
        if (argument.offset, argument.size, argument.kind) != (
            offset,
            size,
            _POINTER_KIND if pointer else _VALUE_KIND,
        ):
            raise PackError(
                f"{image.symbol} ({image.key}): argument {number} is {argument.kind}, {argument.size} bytes"
                f" at {argument.offset}; the plan passes {size} bytes at {offset}",
                cause="the arguments in rules.py are not those of the compiled function",
                hint=f"compare {kernel.family}.{kernel.name} in rules.py with the function's parameters",
            )
        offset += size
    if len(image.arguments) < planned:
        raise PackError(
            f"{image.symbol} ({image.key}) takes {len(image.arguments)} arguments, the plan passes {planned}"
        )
    return len(image.arguments) - planned


def _same_calls(first: PlannedKernel, other: PlannedKernel) -> None:
    shared = sorted(set(first.keys) & set(other.keys))
    calls = [
        {(f.arch, *(f.key[kernel.keys.index(name)] for name in shared)) for f in kernel.functionals}
        for kernel in (first, other)
    ]
    lone = sorted(calls[0] ^ calls[1])
    if lone:
        arch, *numbers = lone[0]
        call = ", ".join(f"{name} = {number}" for name, number in zip(shared, numbers, strict=True))
        missing = first if lone[0] in calls[1] else other
        raise _incomplete(
            f"{missing.family}.{missing.name}, step {missing.step} of {missing.operator},"
            f" has no image for {arch}, {call}"
        )


def _incomplete(what: str) -> PackError:
    return PackError(
        what,
        cause="the plan lacks a kernel of the operator, or its choices and constraints differ between steps",
        hint="look at the kernels of that operator in rules.py and at the profile's keep list",
    )
