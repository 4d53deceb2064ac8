"""Whether a family's rules agree with themselves, with its operators and with its kernels' parameters."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from aotforge.errors import RulesError, suggest
from aotforge.plan.signature import FunctionSignature
from aotforge.rules import Family, Functional, Kernel, Operator, Scalar, Setting, ValueType

ELEMENT_TYPES = frozenset(
    (
        *("fp16", "bf16", "fp32", "fp64", "fp8e4nv", "fp8e5", "fp8e4b8", "fp8e4b15", "fp8e5b16"),
        *("i1", "i8", "i16", "i32", "i64", "u1", "u8", "u16", "u32", "u64"),
    )
)
_PASSED_AS: dict[str, ValueType] = {"i32": "i32", "i64": "i64", "u64": "u64", "fp32": "f32"}
_INTEGERS = frozenset({"i32", "i64", "u64"})
T = TypeVar("T")
_SOURCE = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*/)*[A-Za-z_][A-Za-z0-9_]*\.py")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,28}")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a complaint about rules points: the rules file and the kernel."""

    file: str
    kernel: str = ""

    def error(self, what: str, *, cause: str = "", hint: str = "") -> RulesError:
        """A RulesError about this place."""
        return RulesError(
            f"{self.file}: {f'kernel {self.kernel}: ' if self.kernel else ''}{what}", cause=cause, hint=hint
        )


def run_rule(place: Place, what: str, function: Callable[..., T], *arguments: object) -> T:
    """What a function of the rules returns. Whatever it raises is a RulesError naming its line: rules are foreign code."""
    try:
        return function(*arguments)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        inner = frames[-1]
        raise place.error(
            f"{what} raises {type(error).__name__}: {error}",
            cause=f"{inner.filename}:{inner.lineno}: {inner.line}",
        ) from error


def check_family(family: Family, place: Place) -> None:
    """Names. Raises RulesError."""
    _unique(place, "operator", (operator.name for operator in family.operators))
    _unique(place, "kernel", (kernel.name for kernel in family.kernels))
    for name in (family.name, *(k.name for k in family.kernels), *(o.name for o in family.operators)):
        if not _NAME.fullmatch(name):
            raise place.error(
                f"name {name!r}", cause="names become file names: letters, digits, _ and -, 28 at most"
            )


def check_steps(family: Family, place: Place) -> None:
    """Steps of operators and names of their values, once kernels are known to name operators that exist. Raises RulesError."""
    for operator in family.operators:
        steps = sorted(kernel.step for kernel in family.kernels if kernel.operator == operator.name)
        if steps != list(range(len(steps))) or not steps:
            raise place.error(
                f"operator {operator.name} has kernels for steps {steps}",
                cause="steps count 0, 1, 2 without a gap",
            )
        _unique(place, f"value of {operator.name}", (value.name for value in operator.values))


def check_kernel(
    kernel: Kernel, operators: dict[str, Operator], function: FunctionSignature, place: Place
) -> None:
    """Arguments, choices and grid against operator and function. Raises RulesError."""
    if kernel.operator not in operators:
        raise place.error(f"operator {kernel.operator}", hint=suggest(kernel.operator, operators))
    types: dict[str, ValueType] = {value.name: value.type for value in operators[kernel.operator].values}

    def known(value: str) -> ValueType:
        if value not in types:
            raise place.error(f"operator {kernel.operator} has no value {value}", hint=suggest(value, types))
        return types[value]

    _unique(place, "choice", (choice.name for choice in kernel.choices))
    _unique(place, "key of choices", (choice.key for choice in kernel.choices))
    for choice in kernel.choices:
        if known(choice.key) not in _INTEGERS:
            raise place.error(f"choice {choice.name}: key {choice.key} is not an integer value")
        if not choice.options:
            raise place.error(f"choice {choice.name} has no options")
        _unique(place, f"number of choice {choice.name}", (str(number) for number in choice.options.values()))
    _check_arguments(kernel, function, place)
    for argument in kernel.arguments:
        if argument.divisible_by is not None and (
            argument.divisible_by < 1 or known(argument.value) == "f32"
        ):
            raise place.error(f"argument {argument.name}: divisible_by {argument.divisible_by}")
        known(argument.value)
    if len(kernel.grid) > 3 or any(len(axis) > 4 for axis in kernel.grid):
        raise place.error("grid", cause="a grid has at most 3 axes of at most 4 factors")
    for term in (term for axis in kernel.grid for term in axis):
        if known(term.value) not in _INTEGERS:
            raise place.error(f"grid: {term.value} is not an integer value")


def _check_arguments(kernel: Kernel, function: FunctionSignature, place: Place) -> None:
    names = [argument.name for argument in kernel.arguments]
    _unique(place, "argument", names)
    for name in names:
        if name not in function.parameters:
            raise place.error(
                f"{kernel.function} has no parameter {name}", hint=suggest(name, function.parameters)
            )
        if name in function.constexpr:
            raise place.error(
                f"argument {name} is constexpr in {kernel.function}", hint="give it in constants or settings"
            )
    ordered = [name for name in function.parameters if name in names]
    if ordered != names:
        raise place.error(
            f"arguments come as {', '.join(names)}", cause=f"{kernel.function} takes {', '.join(ordered)}"
        )
    missing = [n for n in function.parameters if n not in names and n not in function.constexpr]
    if missing:
        raise place.error(
            f"{kernel.function} has run-time parameters without an argument: {', '.join(missing)}",
            hint="add Argument entries, or annotate the parameters as tl.constexpr",
        )


def argument_type(template: str, functional: Functional, place: Place) -> str:
    """Triton's type for one functional, with choices filled in. Raises RulesError for what is none."""
    try:
        text = template.format_map(functional)
    except (KeyError, ValueError, IndexError):
        raise place.error(
            f"type {template!r}", cause=f"choices are {', '.join(functional) or 'none'}"
        ) from None
    element = text.removeprefix("*").removeprefix("k") if text.startswith("*") else text
    if element not in ELEMENT_TYPES:
        raise place.error(f"type {text!r}", hint=suggest(element, ELEMENT_TYPES))
    if not text.startswith("*") and text not in _PASSED_AS:
        raise place.error(f"type {text!r}", cause=f"scalars are passed as {', '.join(sorted(_PASSED_AS))}")
    return text


def passed_as(triton_type: str) -> ValueType:
    """The type in which the runtime passes a parameter of a Triton type that `argument_type` accepted."""
    return "ptr" if triton_type.startswith("*") else _PASSED_AS[triton_type]


def check_conversion(name: str, parameter: ValueType, value: ValueType, place: Place) -> None:
    """Whether a value of the operator can fill a parameter. Raises RulesError."""
    if parameter != value and not {parameter, value} <= _INTEGERS:
        raise place.error(f"argument {name} is {parameter}, its operator value is {value}")


def check_source(kernel: Kernel, place: Place) -> None:
    """The kernel's file is a module beside the rules or in a folder below. Raises RulesError."""
    if not _SOURCE.fullmatch(kernel.source):
        raise place.error(f"source {kernel.source!r}", cause="a Python file beside rules.py is needed")


def check_setting(setting: Setting, types: dict[str, ValueType], wavefront: int, place: Place) -> None:
    """Warps, stages and predicates of a setting. Raises RulesError."""
    if (
        setting.num_warps < 1
        or setting.num_warps & (setting.num_warps - 1)
        or setting.num_warps * wavefront > 1024
    ):
        raise place.error(
            f"num_warps {setting.num_warps}", cause="a power of two, of at most 1,024 threads together"
        )
    if (
        setting.num_stages < 1
        or setting.kpack < 1
        or setting.waves_per_eu < 0
        or setting.matrix_instr_nonkdim < 0
    ):
        raise place.error(f"setting {setting} is out of range")
    for between in setting.when:
        if types.get(between.value) not in _INTEGERS or between.low > between.high:
            raise place.error(
                f"when {between.value} in [{between.low}, {between.high}]", hint=suggest(between.value, types)
            )


def all_constants(
    kernel: Kernel, functional: Functional, setting: Setting, function: FunctionSignature, place: Place
) -> dict[str, Scalar]:
    """Every constexpr parameter's value, in parameter order. Raises RulesError for missing, doubled or unknown ones."""
    fixed = run_rule(place, "constants", kernel.constants, functional)
    if not isinstance(fixed, Mapping):
        raise place.error(f"constants return {fixed!r}", cause="a mapping is needed")
    doubled = sorted(fixed.keys() & setting.constants.keys())
    if doubled:
        raise place.error(f"constants {', '.join(doubled)} come from the functional and from the setting")
    given = {**fixed, **setting.constants}
    for name, value in given.items():
        if name not in function.constexpr:
            raise place.error(
                f"constant {name}",
                cause=f"no constexpr of {kernel.function}",
                hint=suggest(name, function.constexpr),
            )
        if not isinstance(value, int | str | bool):
            raise place.error(
                f"constant {name} is {value!r}", cause="constants are integers, strings or booleans"
            )
    values: dict[str, Scalar] = {}
    for name in function.parameters:
        if name in function.constexpr:
            if name not in given and name not in function.defaults:
                raise place.error(
                    f"constexpr {name} of {kernel.function} has no value",
                    hint="give it in constants or settings",
                )
            values[name] = given[name] if name in given else function.defaults[name]
    return values


def _unique(place: Place, what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise place.error(f"{what} {name} is there twice")
        seen.add(name)
