"""Checks that a plan and its images are complete and agree, before a pack is written."""

from collections import defaultdict

from aotforge.compile.model import KernelImage
from aotforge.errors import PackError
from aotforge.plan.model import Plan, PlannedKernel
from aotforge.targets.backend import kernarg_layout


def check_plan(plan: Plan) -> None:
    """Every operator has all its steps, and all steps serve the same calls. Raises PackError.

    Steps of an operator may be keyed by different values; where two share key values, both must list the same
    combinations of them, else a call would find its first kernel and miss the next.
    """
    steps: dict[str, list[PlannedKernel]] = defaultdict(list)
    for kernel in sorted(plan.kernels, key=lambda kernel: kernel.step):
        steps[kernel.operator].append(kernel)
    known = {operator.name for operator in plan.operators}
    for operator in sorted(known | set(steps)):
        kernels = steps[operator]
        _check_steps(operator, kernels if operator in known else [])
        for kernel in kernels:
            _check_calls(kernels[0], kernel)
    _check_jobs(plan)


def _check_steps(operator: str, kernels: list[PlannedKernel]) -> None:
    if not kernels or [kernel.step for kernel in kernels] != list(range(len(kernels))):
        steps = ", ".join(f"{kernel.family}.{kernel.name} as step {kernel.step}" for kernel in kernels)
        raise _incomplete(
            f"operator {operator} does not have kernels for steps 0, 1, 2, ...: {steps or 'none'}"
        )


def _check_calls(first: PlannedKernel, other: PlannedKernel) -> None:
    """Both kernels have functionals, and the same ones as far as they share key values."""
    if not other.functionals:
        raise _incomplete(f"{_step_of(other)}, has no functional")
    shared = sorted(set(first.keys) & set(other.keys))
    calls = [
        {(f.arch, *(f.key[kernel.keys.index(name)] for name in shared)) for f in kernel.functionals}
        for kernel in (first, other)
    ]
    unmatched = sorted(calls[0] ^ calls[1])
    if unmatched:
        arch, *numbers = unmatched[0]
        call = ", ".join(f"{name} = {number}" for name, number in zip(shared, numbers, strict=True))
        missing = first if unmatched[0] in calls[1] else other
        raise _incomplete(f"{_step_of(missing)}, has no image for {arch}, {call}")


def _check_jobs(plan: Plan) -> None:
    """Every job is chosen by a call, and every call chooses a job."""
    jobs = [job.key for job in plan.jobs]
    chosen = {c.job for kernel in plan.kernels for f in kernel.functionals for c in f.choices}
    if len(set(jobs)) != len(jobs) or set(jobs) != chosen:
        raise _incomplete(f"{len(jobs)} compile jobs for {len(chosen)} images that calls can choose")


def check_arguments(kernel: PlannedKernel, image: KernelImage) -> int:
    """The number of scratch pointers that follow the planned parameters in the image's kernel arguments.

    The runtime lays parameters out in order with natural alignment. Raises PackError when the code object
    expects another layout.
    """
    planned, taken = len(kernel.parameters), len(image.arguments)
    if taken < planned:
        raise PackError(f"{image.symbol} ({image.key}) takes {taken} arguments, the plan passes {planned}")
    types = [*(parameter.type for parameter in kernel.parameters), *["ptr"] * (taken - planned)]
    for number, (argument, expected) in enumerate(zip(image.arguments, kernarg_layout(types), strict=True)):
        if argument != expected:
            raise PackError(
                f"{image.symbol} ({image.key}): argument {number} is {argument.kind}, {argument.size} bytes"
                f" at {argument.offset}; the plan passes {expected.size} bytes at {expected.offset}",
                cause="the arguments in rules.py are not those of the compiled function",
                hint=f"compare {kernel.family}.{kernel.name} in rules.py with the function's parameters",
            )
    return taken - planned


def _step_of(kernel: PlannedKernel) -> str:
    return f"{kernel.family}.{kernel.name}, step {kernel.step} of {kernel.operator}"


def _incomplete(what: str) -> PackError:
    return PackError(
        what,
        cause="the plan lacks a kernel of the operator, or its choices and constraints differ between steps",
        hint="compare the kernels of that operator in rules.py and the profile's keep list",
    )
