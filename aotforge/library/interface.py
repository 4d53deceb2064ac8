"""Checks that C++ and rules declare the same operator interfaces."""

import re
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import cast

from aotforge.errors import RulesError
from aotforge.plan.model import Plan
from aotforge.rules import Operator, Value, ValueType

DEFINITION = Path("runtime", "src", "operators.def")
"""X-macros that the library's operators are compiled from, below the checkout."""

_PREFIX = "AOTFORGE_"
_MACRO = re.compile(rf"^#define ({_PREFIX}\w+)\(X, op\)(.*)$", re.MULTILINE)
_USE = re.compile(rf"({_PREFIX}\w+)\(X, op\)")
_VALUE = re.compile(r"X\(op, (\w+), (\w+)\)")


def check_interfaces(root: Path, plans: Iterable[Plan]) -> None:
    """Compare every operator that the library serves itself with the plans' operator of that name.

    A plan may lack some: a profile need not have kernels for all. Raises RulesError naming the operator,
    both hashes and both files.
    """
    definition = root / DEFINITION
    library = library_operators(definition)
    for plan in plans:
        for planned in plan.operators:
            served = library.get(planned.name)
            if served is not None and served.interface() != planned.interface():
                family = next(kernel.family for kernel in plan.kernels if kernel.operator == planned.name)
                raise RulesError(
                    f"operator {planned.name}: interface {served.interface_hash()} in {definition}, "
                    f"{planned.interface_hash()} in {root / 'kernels' / family}",
                    cause=_difference(served, planned),
                    hint=f"make {DEFINITION} and kernels/{family} list the same values in one order",
                )


def library_operators(definition: Path) -> dict[str, Operator]:
    """Operators of an operators.def by name: macros that no other macro uses. Raises RulesError."""
    try:
        text = definition.read_text(encoding="utf-8").replace("\\\n", " ")
    except (OSError, UnicodeDecodeError) as error:
        raise RulesError(f"{definition} cannot be read: {error}") from error
    macros = dict(_MACRO.findall(text))
    parts = {name for body in macros.values() for name in _USE.findall(body)}
    operators = {}
    for macro in macros.keys() - parts:
        body = _expanded(definition, macros, macro, ())
        name = macro.removeprefix(_PREFIX).lower()
        values = (Value(name=value, type=cast(ValueType, type_)) for type_, value in _VALUE.findall(body))
        operators[name] = Operator(name=name, values=tuple(values))
    if not operators:
        raise RulesError(f"{definition} defines no operator")
    return operators


def _expanded(definition: Path, macros: dict[str, str], name: str, within: tuple[str, ...]) -> str:
    if name in within or name not in macros:
        raise RulesError(f"{definition}: {name} is defined by itself or not at all")
    body = _USE.sub(lambda use: _expanded(definition, macros, use.group(1), (*within, name)), macros[name])
    if rest := _VALUE.sub("", body).strip():
        raise RulesError(f"{definition}: {name} holds {rest[:60]!r}, which is not X(op, type, value)")
    return body


def _difference(served: Operator, planned: Operator) -> str:
    names = ([f"{value.name}:{value.type}" for value in operator.values] for operator in (served, planned))
    both = enumerate(zip_longest(*names, fillvalue="missing"))
    at, (ours, theirs) = next((at, pair) for at, pair in both if pair[0] != pair[1])
    return f"value {at} is {ours} in the library and {theirs} in the rules"
