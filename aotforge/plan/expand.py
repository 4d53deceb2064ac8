"""Rules to jobs: every functional, every setting, one image each, and one more without hints (see aotforge/rules.py)."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from aotforge.plan.checks import (
    Place,
    all_constants,
    argument_type,
    check_conversion,
    check_setting,
    passed_as,
)
from aotforge.plan.signature import FunctionSignature
from aotforge.plan.values import (
    CompileJob,
    GridTerm,
    JobKey,
    PlannedChoice,
    PlannedFunctional,
    PlannedKernel,
    PlannedParameter,
    Predicate,
    Toolchain,
)
from aotforge.rules import Chip, Family, Functional, Kernel, Operator, Scalar, Setting, ValueType

RECIPE = 1
"""Enters every job key: raised when this project changes how it drives the compiler, so that old images are not reused."""

Keep = Mapping[str, tuple[Scalar, ...]]


@dataclass(frozen=True, kw_only=True)
class KernelContext:
    """What expanding one kernel needs besides its rules."""

    family: Family
    kernel: Kernel
    operator: Operator
    source: str
    function: FunctionSignature
    source_digest: str
    toolchain: Toolchain
    toolchain_digest: str
    place: Place


def toolchain_digest(toolchain: Toolchain) -> str:
    """SHA-256 of everything about the compiler that enters job keys."""
    return hashlib.sha256(canonical_json(asdict(toolchain)).encode()).hexdigest()


def canonical_json(value: object) -> str:
    """JSON with sorted keys and no spaces: one text per value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def same(left: Scalar, right: Scalar) -> bool:
    """Equality that tells True from 1, as Python's does not."""
    return type(left) is type(right) and left == right


def functionals(kernel: Kernel, keep: Keep) -> Iterator[tuple[tuple[int, ...], Functional]]:
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
        if kernel.allowed(functional):
            yield tuple(number for number, _ in combination), functional


def expand_kernel(
    context: KernelContext, chips: tuple[Chip, ...], keep: Keep
) -> tuple[PlannedKernel, dict[JobKey, CompileJob]]:
    """A kernel's dispatch data and jobs, in canonical order (chip, functional, setting). Raises RulesError."""
    jobs: dict[JobKey, CompileJob] = {}
    planned: list[PlannedFunctional] = []
    parameters: tuple[PlannedParameter, ...] | None = None
    kernel = context.kernel
    kept = list(functionals(kernel, keep))
    types: dict[str, ValueType] = {value.name: value.type for value in context.operator.values}
    for chip in chips:
        for key, functional in kept:
            settings = kernel.settings(chip, functional)
            if not settings:
                continue
            signature = _signature(context, functional)
            found = _parameters(context, signature, types)
            if parameters is not None and found != parameters:
                raise context.place.error(
                    "argument types differ between functionals", cause="kernarg layouts must be one"
                )
            parameters = found
            choices = _choices(context, chip, functional, settings, signature, types, jobs)
            planned.append(PlannedFunctional(arch=chip.arch, key=key, choices=choices))
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
    context: KernelContext,
    chip: Chip,
    functional: Functional,
    settings: tuple[Setting, ...],
    signature: dict[str, str],
    types: dict[str, ValueType],
    jobs: dict[JobKey, CompileJob],
) -> tuple[PlannedChoice, ...]:
    hints = {a.name: a.divisible_by for a in context.kernel.arguments if a.divisible_by not in {None, 1}}
    aligned = tuple(
        dict.fromkeys(
            Predicate(value=a.value, kind="multiple", low=a.divisible_by)
            for a in context.kernel.arguments
            if a.divisible_by not in {None, 1} and a.divisible_by is not None
        )
    )
    # the last setting once more without hints serves what is not aligned
    tries = [(number, setting, True) for number, setting in enumerate(settings)]
    tries.append((len(settings) - 1, settings[-1], False))
    choices: dict[tuple[Predicate, ...], PlannedChoice] = {}
    for number, setting, hinted in tries:
        check_setting(setting, types, chip.wavefront, context.place)
        when = tuple(Predicate(value=b.value, kind="range", low=b.low, high=b.high) for b in setting.when)
        predicates = (*when, *(aligned if hinted else ()))
        if predicates in choices:
            continue  # an earlier image serves exactly the same calls
        constants = all_constants(context.kernel, functional, setting, context.function, context.place)
        used = {name: n for name, n in hints.items() if n is not None} if hinted else {}
        job = _job(
            context,
            chip,
            _label(context, chip, functional, number, hinted),
            signature,
            constants,
            used,
            setting,
        )
        jobs.setdefault(job.key, job)
        choices[predicates] = PlannedChoice(
            job=job.key, predicates=predicates, grid=_grid(context, constants)
        )
    return tuple(choices.values())


def _label(context: KernelContext, chip: Chip, functional: Functional, number: int, hinted: bool) -> str:
    values = ",".join(f"{name}={str(value).lower()}" for name, value in functional.items())
    parts = [
        f"{context.family.name}.{context.kernel.name}",
        chip.arch,
        values,
        f"{number}{'' if hinted else 'u'}",
    ]
    return ":".join(part for part in parts if part)


def _signature(context: KernelContext, functional: Functional) -> dict[str, str]:
    types = {a.name: argument_type(a.type, functional, context.place) for a in context.kernel.arguments}
    return {name: types.get(name, "constexpr") for name in context.function.parameters}


def _parameters(
    context: KernelContext, signature: dict[str, str], types: dict[str, ValueType]
) -> tuple[PlannedParameter, ...]:
    parameters = []
    for argument in context.kernel.arguments:
        passed = passed_as(signature[argument.name])
        check_conversion(argument.name, passed, types[argument.value], context.place)
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


def _job(
    context: KernelContext,
    chip: Chip,
    label: str,
    signature: dict[str, str],
    constants: dict[str, Scalar],
    hints: dict[str, int],
    setting: Setting,
) -> CompileJob:
    options = {
        "kpack": setting.kpack,
        "matrix_instr_nonkdim": setting.matrix_instr_nonkdim,
        "num_stages": setting.num_stages,
        "num_warps": setting.num_warps,
        "waves_per_eu": setting.waves_per_eu,
    }
    identity = {
        "recipe": RECIPE,
        "family": context.family.name,
        "kernel": context.kernel.name,
        "source": context.source,
        "function": context.kernel.function,
        "source_digest": context.source_digest,
        "chip": [chip.arch, chip.wavefront, chip.matrix, chip.lds_bytes],
        "signature": list(signature.items()),
        "constants": list(constants.items()),
        "hints": list(hints.items()),
        "options": list(options.items()),
        "toolchain": context.toolchain_digest,
    }
    return CompileJob(
        key=hashlib.sha256(canonical_json(identity).encode()).hexdigest(),
        family=context.family.name,
        kernel=context.kernel.name,
        label=label,
        source=context.source,
        function=context.kernel.function,
        source_digest=context.source_digest,
        chip=chip,
        signature=tuple(signature.items()),
        constants=tuple(constants.items()),
        hints=tuple(hints.items()),
        options=tuple(options.items()),
        toolchain=context.toolchain,
        spills=context.kernel.limits.spills,
    )
