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
                rules = _rules_file(root, plan, planned)
                raise RulesError(
                    f"operator {planned.name}: interface {served.interface_hash()} in {definition}, "
                    f"{planned.interface_hash()} in {rules}",
                    cause=_difference(served, planned),
                    hint=f"make {DEFINITION} and {rules.relative_to(root)} list the same values in one order",
                )


def library_operators(definition: Path) -> dict[str, Operator]:
    """Operators of an operators.def by name: its macros that no other macro uses. Raises RulesError for
    another file."""
    try:
        text = definition.read_text(encoding="utf-8").replace("\\\n", " ")
    except (OSError, UnicodeDecodeError) as error:
        raise RulesError(f"{definition} cannot be read: {error}") from error
    macros = dict(_MACRO.findall(text))
    parts = {name for body in macros.values() for name in _USE.findall(body)}
    found = {}
    for macro in macros.keys() - parts:
        body = _expanded(definition, macros, macro, ())
        name = macro.removeprefix(_PREFIX).lower()
        values = (Value(name=value, type=cast(ValueType, type_)) for type_, value in _VALUE.findall(body))
        found[name] = Operator(name=name, values=tuple(values))
    if not found:
        raise RulesError(f"{definition} defines no operator")
    return found


def _expanded(definition: Path, macros: dict[str, str], name: str, within: tuple[str, ...]) -> str:
    if name in within or name not in macros:
        raise RulesError(f"{definition}: {name} is defined by itself or not at all")
    body = _USE.sub(lambda use: _expanded(definition, macros, use.group(1), (*within, name)), macros[name])
    if rest := _VALUE.sub("", body).strip():
        raise RulesError(f"{definition}: {name} holds {rest[:60]!r}, which is not X(op, type, value)")
    return body


def _rules_file(root: Path, plan: Plan, operator: Operator) -> Path:
    family = next(kernel.family for kernel in plan.kernels if kernel.operator == operator.name)
    folder = root / "kernels" / family
    # by convention; a small family has its operators in rules.py
    named = folder / "operators.py"
    return named if named.is_file() else folder / "rules.py"


def _difference(served: Operator, planned: Operator) -> str:
    for at, (ours, theirs) in enumerate(zip_longest(served.values, planned.values)):
        if ours != theirs:
            return f"value {at} is {_shown(ours)} in the library and {_shown(theirs)} in the rules"
    return ""


def _shown(value: Value | None) -> str:
    return f"{value.name}:{value.type}" if value else "missing"
