"""Checks of a family's rules against its operators and its kernels' parameters."""

import re
from collections.abc import Mapping

from aotforge.errors import suggest
from aotforge.plan.conditions import INTEGERS, check_condition
from aotforge.plan.context import KernelContext, RulesLocation
from aotforge.rules import Family, Functional, Kernel, Operator, Scalar, Setting, Target, ValueType
from aotforge.targets.backends import backend_of

ELEMENT_TYPES = frozenset(
    (
        *("fp16", "bf16", "fp32", "fp64", "fp8e4nv", "fp8e5", "fp8e4b8", "fp8e4b15", "fp8e5b16"),
        *("i1", "i8", "i16", "i32", "i64", "u1", "u8", "u16", "u32", "u64"),
    )
)
_PASSED_AS: dict[str, ValueType] = {"i32": "i32", "i64": "i64", "u64": "u64", "fp32": "f32"}
_SOURCE = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*/)*[A-Za-z_][A-Za-z0-9_]*\.py")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,28}")
_THREADS_PER_WORKGROUP = 1024
_AXES, _FACTORS = 3, 4
_OPTION_FIELDS = frozenset({"waves_per_eu", "matrix_instr_nonkdim", "kpack"})
"""Fields of Setting that are options of one vendor."""


def check_family(family: Family, location: RulesLocation) -> None:
    """Names are unique and usable as file names. Raises RulesError."""
    operators = [operator.name for operator in family.operators]
    kernels = [kernel.name for kernel in family.kernels]
    location.check_unique("operator", operators)
    location.check_unique("kernel", kernels)
    for name in (family.name, *kernels, *operators):
        if not _NAME.fullmatch(name):
            raise location.error(
                f"{name!r} is not a valid name",
                cause="names become file names: letters, digits, _ and -, 28 at most",
            )


def check_steps(family: Family, location: RulesLocation) -> None:
    """Steps of operators and names of their values, once all operators are known. Raises RulesError."""
    for operator in family.operators:
        steps = sorted(kernel.step for kernel in family.kernels if kernel.operator == operator.name)
        if steps != list(range(len(steps))) or not steps:
            raise location.error(
                f"operator {operator.name} has kernels for steps {steps}",
                cause="steps count 0, 1, 2 without a gap",
            )
        location.check_unique(f"value of {operator.name}", (value.name for value in operator.values))


def check_source_name(name: str, location: RulesLocation) -> None:
    """A source is a file beside rules.py. Raises RulesError."""
    if not _SOURCE.fullmatch(name):
        raise location.error(f"source {name!r}", cause="it must be a Python file beside rules.py")


def check_source(kernel: Kernel, operators: Mapping[str, Operator], location: RulesLocation) -> None:
    """The kernel's file is a module beside the rules or below, its operator exists. Raises RulesError."""
    check_source_name(kernel.source, location)
    if kernel.operator not in operators:
        raise location.error(f"unknown operator {kernel.operator}", hint=suggest(kernel.operator, operators))


def check_kernel(context: KernelContext) -> None:
    """Choices, arguments and grid fit the operator and the function. Raises RulesError."""
    _check_choices(context)
    _check_arguments(context)
    _check_grid(context)


def _type_of(context: KernelContext, value: str) -> ValueType:
    if value not in context.types:
        raise context.location.error(
            f"operator {context.operator.name} has no value {value}", hint=suggest(value, context.types)
        )
    return context.types[value]


def _check_choices(context: KernelContext) -> None:
    location, choices = context.location, context.kernel.choices
    location.check_unique("choice", (choice.name for choice in choices))
    location.check_unique("key of choices", (choice.key for choice in choices))
    for choice in choices:
        if _type_of(context, choice.key) not in INTEGERS:
            raise location.error(f"choice {choice.name}: key {choice.key} is not an integer value")
        if not choice.options:
            raise location.error(f"choice {choice.name} has no options")
        location.check_unique(f"number of choice {choice.name}", choice.options.values())
        if choice.ladder and choice is not choices[-1]:
            raise location.error(
                f"choice {choice.name} is a ladder", cause="only the last choice of a kernel may be one"
            )


def _check_arguments(context: KernelContext) -> None:
    location, function, called = context.location, context.function, context.kernel.function
    names = [argument.name for argument in context.kernel.arguments]
    location.check_unique("argument", names)
    for name in names:
        if name not in function.parameters:
            raise location.error(f"{called} has no parameter {name}", hint=suggest(name, function.parameters))
        if name in function.constexpr:
            raise location.error(
                f"argument {name} is constexpr in {called}", hint="give it in constants or settings"
            )
    ordered = [name for name in function.parameters if name in names]
    if ordered != names:
        given, taken = ", ".join(names), ", ".join(ordered)
        raise location.error(f"the arguments are {given}", cause=f"{called} takes {taken}")
    missing = [n for n in function.parameters if n not in names and n not in function.constexpr]
    if missing:
        raise location.error(
            f"{called} has run-time parameters without an argument: {', '.join(missing)}",
            hint="add Argument entries, or annotate the parameters as tl.constexpr",
        )
    for argument in context.kernel.arguments:
        kind, divisor = _type_of(context, argument.value), argument.divisible_by
        if divisor is not None and (divisor < 1 or kind == "f32"):
            raise location.error(f"argument {argument.name}: divisible_by {divisor}")


def _check_grid(context: KernelContext) -> None:
    grid, location = context.kernel.grid, context.location
    if len(grid) > _AXES or any(len(axis) > _FACTORS for axis in grid):
        raise location.error("grid", cause=f"a grid has at most {_AXES} axes of at most {_FACTORS} factors")
    for term in (term for axis in grid for term in axis):
        if _type_of(context, term.value) not in INTEGERS:
            raise location.error(f"grid: {term.value} is not an integer value")


def argument_type(context: KernelContext, template: str, functional: Functional) -> str:
    """Triton's type for one functional, with choices filled in. Raises RulesError."""
    location, scalars = context.location, ", ".join(sorted(_PASSED_AS))
    try:
        text = template.format_map(functional)
    except (KeyError, ValueError, IndexError):
        choices = ", ".join(functional) or "none"
        raise location.error(f"type {template!r}", cause=f"choices are {choices}") from None
    element = text.removeprefix("*").removeprefix("k") if text.startswith("*") else text
    if element not in ELEMENT_TYPES:
        raise location.error(f"type {text!r}", hint=suggest(element, ELEMENT_TYPES))
    if not text.startswith("*") and text not in _PASSED_AS:
        raise location.error(f"type {text!r}", cause=f"scalars are passed as {scalars}")
    return text


def passed_as(context: KernelContext, name: str, triton_type: str, value: ValueType) -> ValueType:
    """The type in which the runtime passes an operator value of type `value`. Raises RulesError."""
    passed = "ptr" if triton_type.startswith("*") else _PASSED_AS[triton_type]
    if passed != value and not {passed, value} <= INTEGERS:
        raise context.location.error(f"argument {name} is {passed}, its operator value is {value}")
    return passed


def check_setting(context: KernelContext, setting: object, target: Target) -> None:
    """Warps, stages, options and conditions of a setting. Raises RulesError."""
    location, backend = context.location, backend_of(target.vendor)
    if not isinstance(setting, Setting):
        raise location.error(f"settings offer {setting!r}", cause="they must be rules.Setting values")
    warps = setting.num_warps
    if warps < 1 or warps & (warps - 1) or warps * target.warp_size > _THREADS_PER_WORKGROUP:
        raise location.error(
            f"num_warps {warps}",
            cause=f"it must be a power of two, at most {_THREADS_PER_WORKGROUP:,} threads in total",
        )
    if (
        min(setting.num_stages, setting.kpack) < 1
        or min(setting.waves_per_eu, setting.matrix_instr_nonkdim) < 0
    ):
        raise location.error(f"setting {setting} is out of range")
    for name in sorted(_OPTION_FIELDS - set(backend.options.fields)):  # they would be without effect
        value = getattr(setting, name)
        if value != Setting.__dataclass_fields__[name].default:
            raise location.error(
                f"{name} = {value} in a setting for {target.arch}",
                cause=f"Triton's {backend.options.maker} back end has no such option",
                hint="give this vendor's archs settings of their own",
            )
    for name, value in setting.options.items():
        cause, hint = backend.options.refusal(name, value)
        if cause:
            raise location.error(f"option {name} = {value!r}", cause=cause, hint=hint)
    for condition in setting.when:
        check_condition(condition, context.types, location)


def check_shared_memory(
    context: KernelContext, functional: Functional, setting: Setting, target: Target
) -> None:
    """A workgroup's tiles are within the target's shared memory. Raises RulesError."""
    if context.kernel.shared_bytes is None:
        return
    needed = context.location.run("shared_bytes", context.kernel.shared_bytes, functional, setting)
    if needed > target.shared_bytes:
        blocks = ", ".join(f"{name}={value}" for name, value in setting.constants.items())
        raise context.location.error(
            f"a setting needs at least {needed:,} bytes of shared memory, "
            f"{target.arch} has {target.shared_bytes:,}",
            cause=f"{blocks}, num_stages={setting.num_stages} for {dict(functional)}",
            hint="take smaller blocks, or fewer stages",
        )


def all_constants(context: KernelContext, functional: Functional, setting: Setting) -> dict[str, Scalar]:
    """Every constexpr parameter's value, in parameter order. Raises RulesError."""
    location, function, called = context.location, context.function, context.kernel.function
    fixed = location.run("constants", context.kernel.constants, functional)
    if not isinstance(fixed, Mapping):
        raise location.error(f"constants return {fixed!r}", cause="they must return a mapping")
    doubled = sorted(fixed.keys() & setting.constants.keys())
    if doubled:
        raise location.error(f"constants {', '.join(doubled)} come from the functional and from the setting")
    given = {**fixed, **setting.constants}
    for name, value in given.items():
        if name not in function.constexpr:
            raise location.error(
                f"constant {name}",
                cause=f"{called} has no such constexpr",
                hint=suggest(name, function.constexpr),
            )
        if not isinstance(value, int | str | bool):
            raise location.error(
                f"constant {name} is {value!r}", cause="constants are integers, strings or booleans"
            )
    values = {**function.defaults, **given}
    wanted = [name for name in function.parameters if name in function.constexpr]
    for name in wanted:
        if name not in values:
            raise location.error(
                f"constexpr {name} of {called} has no value", hint="give it in constants or settings"
            )
    return {name: values[name] for name in wanted}
