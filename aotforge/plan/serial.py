"""The plan as JSON and back, for `./dev plan --json` and for tools that read it."""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from aotforge.plan.model import Plan

T = TypeVar("T")


def plan_to_json(plan: Plan) -> str:
    """Keys sorted, indented by one space, final newline; equal plans give equal bytes.

    The toolchain is at the top, once; jobs do not repeat it.
    """
    tree = asdict(plan)
    for job in tree["jobs"]:
        del job["toolchain"]
    return json.dumps(tree, sort_keys=True, indent=1) + "\n"


def plan_from_json(text: str) -> Plan:
    """Inverse of `plan_to_json`. Raises ValueError, KeyError or TypeError for other JSON."""
    tree = json.loads(text)
    for job in tree["jobs"]:
        job["toolchain"] = tree["toolchain"]
    return build(Plan, tree)


def build(wanted: type[T], tree: object) -> T:
    """A dataclass, with nested dataclasses and tuples, from the JSON of its `asdict`. Raises KeyError or TypeError."""
    value = _build(wanted, tree)
    assert isinstance(value, wanted)
    return value


def _build(wanted: Any, value: Any) -> Any:
    if is_dataclass(wanted) and isinstance(wanted, type):
        return wanted(**{name: _build(kind, value[name]) for name, kind in _hints(wanted).items()})
    if get_origin(wanted) is tuple:
        inner = get_args(wanted)
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(_build(inner[0], item) for item in value)
        return tuple(_build(kind, item) for kind, item in zip(inner, value, strict=True))
    return value


_hints = cache(get_type_hints)
