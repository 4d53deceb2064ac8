"""Conditions of settings as predicates, their checks, and the order in which settings are tried."""

from collections.abc import Iterator, Mapping, Sequence

from aotforge.errors import suggest
from aotforge.plan.context import RulesLocation
from aotforge.plan.model import Predicate
from aotforge.rules import Argument, Between, Condition, Equals, MultipleOf, Setting, ValueType

INTEGERS = frozenset({"i32", "i64", "u64"})
FACTOR_LIMIT = 4
PRODUCT_DIVISOR_LIMIT = 2**32 - 1
"""Largest divisor of a product: the library reduces factors modulo it in 64 bits."""
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


def predicate(condition: Condition) -> Predicate:
    """The predicate that a pack holds for a condition."""
    values = (condition.value,) if isinstance(condition.value, str) else condition.value
    if isinstance(condition, MultipleOf):
        return Predicate(values=values, kind="multiple", low=condition.of)
    if isinstance(condition, Equals):
        return Predicate(values=values, kind="range", low=condition.to, high=condition.to)
    return Predicate(values=values, kind="range", low=condition.low, high=condition.high)


def hints(arguments: Sequence[Argument]) -> tuple[Predicate, ...]:
    """What must hold of operator values for an image that was compiled with the arguments' hints."""
    return tuple(
        dict.fromkeys(
            Predicate(values=(a.value,), kind="multiple", low=a.divisible_by)
            for a in arguments
            if a.divisible_by is not None and a.divisible_by > 1
        )
    )


def tries(
    settings: Sequence[Setting], hinted: tuple[Predicate, ...]
) -> Iterator[tuple[int, bool, tuple[Predicate, ...]]]:
    """Number of the setting, whether its image has hints, and its predicates, in the order of trial."""
    found: set[tuple[Predicate, ...]] = set()
    for with_hints in (True, False):
        for number, setting in enumerate(settings):
            if setting.hinted if with_hints else setting.unaligned:
                when = tuple(map(predicate, setting.when))
                predicates = (*when, *hinted) if with_hints else when
                if predicates not in found:  # else no call reaches it
                    found.add(predicates)
                    yield number, with_hints, predicates


def check_condition(condition: object, types: Mapping[str, ValueType], location: RulesLocation) -> None:
    """A condition of a setting is one that a pack can hold. Raises RulesError."""
    if not isinstance(condition, Between | Equals | MultipleOf):
        raise location.error(
            f"when {condition!r}", cause="it must be rules.Between, rules.Equals or rules.MultipleOf"
        )
    found = predicate(condition)
    text = when_text([found])
    if not 1 <= len(found.values) <= FACTOR_LIMIT:
        raise location.error(f"when {condition!r}", cause=f"a product has 1 to {FACTOR_LIMIT} values")
    for value in found.values:
        if value not in types:
            raise location.error(
                f"when {text}: the operator has no value {value}", hint=suggest(value, types)
            )
        pointer = types[value] == "ptr" and found.kind == "multiple" and len(found.values) == 1
        if types[value] not in INTEGERS and not pointer:
            raise location.error(
                f"when {text}: {value} is {types[value]}",
                cause="conditions are on integers; MultipleOf also on a single pointer",
            )
    if found.kind == "multiple":
        limit = _HIGHEST if len(found.values) == 1 else PRODUCT_DIVISOR_LIMIT
        if not 1 <= found.low <= limit:
            raise location.error(f"when {text}", cause=f"the divisor must be 1 to {limit}")
    elif not _LOWEST <= found.low <= found.high <= _HIGHEST:
        raise location.error(
            f"when {text}", cause="no value is in that range, or a bound has more than 64 bits"
        )


def when_text(predicates: Sequence[Predicate]) -> str:
    """Predicates as people write them, e.g. `(Q, K) % 16 = 0, m * n <= 16`; `always` without any."""
    alike: dict[tuple[str, int, int], list[str]] = {}
    for one in predicates:
        value = " * ".join(one.values)
        if one.kind == "multiple" and len(one.values) > 1:
            value = f"({value})"
        alike.setdefault((one.kind, one.low, one.high), []).append(value)
    return ", ".join(_text(values, *condition) for condition, values in alike.items()) or "always"


def _text(values: Sequence[str], kind: str, low: int, high: int) -> str:
    value = values[0] if len(values) == 1 else f"({', '.join(values)})"
    if kind == "multiple":
        return f"{value} % {low} = 0"
    if low == high:
        return f"{value} = {low}"
    if low == _LOWEST:
        return f"{value} <= {high}"
    return f"{value} >= {low}" if high == _HIGHEST else f"{low} <= {value} <= {high}"
