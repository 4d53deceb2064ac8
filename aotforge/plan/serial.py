"""The plan as JSON and back, for `invoke plan --json` and for tools that read it."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from aotforge.plan.model import Plan


def plan_to_json(plan: Plan) -> str:
    """Keys sorted, indented by one space, final newline; equal plans give equal bytes.

    The toolchain stands once at the top; jobs do not repeat it.
    """
    tree = asdict(plan)
    for job in tree["jobs"]:
        del job["toolchain"]
    return json.dumps(tree, sort_keys=True, indent=1) + "\n"


def plan_from_json(text: str) -> Plan:
    """Inverse of `plan_to_json`. Raises ValueError, KeyError or TypeError for what is no plan."""
    tree = json.loads(text)
    for job in tree["jobs"]:
        job["toolchain"] = tree["toolchain"]
    plan = build_value(Plan, tree)
    assert isinstance(plan, Plan)
    return plan


def build_value(wanted: Any, value: Any) -> Any:
    """Nested frozen dataclasses and tuples from JSON values."""
    if is_dataclass(wanted) and isinstance(wanted, type):
        hints = get_type_hints(wanted)
        return wanted(
            **{field.name: build_value(hints[field.name], value[field.name]) for field in fields(wanted)}
        )
    if get_origin(wanted) is tuple:
        inner = get_args(wanted)
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(build_value(inner[0], item) for item in value)
        return tuple(build_value(kind, item) for kind, item in zip(inner, value, strict=True))
    return value
