"""Proof that a plan has an image for every call that a gate lets through."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from aotforge.plan.model import PlannedFunctional, PlannedKernel, Predicate, ServedGate
from aotforge.rules import Gate, GateCalls

_LARGEST = 2**31 - 1
"""Of 32-bit values, whose ranges need not reach beyond."""


def served_gates(
    gates: Iterable[Gate], kernels: Sequence[PlannedKernel], archs: Iterable[str]
) -> tuple[ServedGate, ...]:
    """Every gate and arch of which all calls are served, sorted."""
    return tuple(
        ServedGate(gate=gate.name, arch=arch)
        for gate in sorted(gates, key=lambda gate: gate.name)
        for arch in sorted(archs)
        if next(missing_calls(gate, kernels, arch), None) is None
    )


def pytorch_use(gates: Iterable[ServedGate], archs: Iterable[str], level: str) -> str:
    """Whether PyTorch uses images that serve these gates on these archs: `yes`, or `no, because ...`."""
    served = {gate.arch for gate in gates if gate.gate == level}
    lacking = [arch for arch in archs if arch not in served]
    if not lacking:
        return "yes"
    return (
        f"no, because the images for {', '.join(lacking)} do not serve all attention that PyTorch may "
        f"request at API level {level}: build the profile core without --only, or set "
        "AOTFORGE_PARTIAL_PACK=1 for programs that make only the calls served"
    )


def missing_calls(gate: Gate, kernels: Sequence[PlannedKernel], arch: str) -> Iterator[str]:
    """A line for each kind of call that the gate lets through and no kernel serves on `arch`."""
    for calls in gate.calls:
        if arch.startswith(tuple(calls.except_archs)):
            continue
        steps = [kernel for kernel in kernels if kernel.operator == calls.operator]
        if not steps:
            yield f"{calls.operator} is not in the plan"
            continue
        used = {name for kernel in steps for name in _used(kernel)}
        yield from (f"no kernel of {calls.operator} uses {name}" for name in calls.uses if name not in used)
        for kernel in steps:
            yield from _missing(calls, kernel, arch)


def _missing(calls: GateCalls, kernel: PlannedKernel, arch: str) -> Iterator[str]:
    name = f"{kernel.family}.{kernel.name}"
    if unbound := [key for key in kernel.keys if key not in calls.values]:
        yield f"{name} distinguishes {', '.join(unbound)}, which the gate does not bound"
        return
    functionals = {f.key: f for f in kernel.functionals if f.arch == arch}
    for key in itertools.product(*(calls.values[key] for key in kernel.keys)):
        found = _serving(functionals, key, ladder=kernel.ladder)
        text = ", ".join(f"{value} {number}" for value, number in zip(kernel.keys, key, strict=True))
        if not found:
            yield f"{name} has no image for {text}"
        yield from (
            f"{name} has conditions on {text}, and no image without"
            for functional in found
            if not any(all(map(_always, choice.predicates)) for choice in functional.choices)
        )


def _serving(
    functionals: Mapping[tuple[int, ...], PlannedFunctional], key: tuple[int, ...], *, ladder: bool
) -> list[PlannedFunctional]:
    """The functional of a call; with a ladder, those of every call up to this one, if it reaches it."""
    if not ladder:
        return [functionals[key]] if key in functionals else []
    rungs = sorted(found[-1] for found in functionals if found[:-1] == key[:-1])
    last = next((rung for rung in rungs if rung >= key[-1]), None)
    return [] if last is None else [functionals[*key[:-1], rung] for rung in rungs if rung <= last]


def _always(predicate: Predicate) -> bool:
    if predicate.kind == "multiple":
        return predicate.low == 1
    return len(predicate.values) == 1 and predicate.low <= 0 and predicate.high >= _LARGEST


def _used(kernel: PlannedKernel) -> Iterator[str]:
    yield from kernel.keys
    yield from (parameter.value for parameter in kernel.parameters)
    for functional in kernel.functionals:
        for choice in functional.choices:
            yield from (name for predicate in choice.predicates for name in predicate.values)
