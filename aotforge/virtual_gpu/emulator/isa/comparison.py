"""Vector comparisons: one bit per lane into a scalar mask; `v_cmpx` also into EXEC."""

from __future__ import annotations

from aotforge.virtual_gpu.emulator.isa.entry import merged, table

_ORDERED = {"lt": "{a} < {b}", "eq": "{a} == {b}", "le": "{a} <= {b}", "gt": "{a} > {b}", "ge": "{a} >= {b}"}
_INTEGER = {**_ORDERED, "ne": "{a} != {b}"}
_FLOAT = {
    **_ORDERED,
    "lg": "{a} < {b} || {a} > {b}",
    "o": "{a} == {a} && {b} == {b}",
    "u": "{a} != {a} || {b} != {b}",
    "nge": "!({a} >= {b})",
    "nlg": "!({a} < {b} || {a} > {b})",
    "ngt": "!({a} > {b})",
    "nle": "!({a} <= {b})",
    "neq": "!({a} == {b})",
    "nlt": "!({a} < {b})",
}


def _lines(prefix: str, relations: dict[str, str], types: tuple[str, ...]) -> dict[str, str]:
    return {
        f"{prefix}_{name}_{t}": "SD.mask = " + relation.format(a=f"S0.{t}", b=f"S1.{t}")
        for t in types
        for name, relation in relations.items()
    }


_INTEGERS = ("i32", "u32", "i64", "u64", "i16", "u16")
_FLOATS = ("f32", "f16", "f64")

TABLE = merged(
    table("vector", _lines("v_cmp", _INTEGER, _INTEGERS) | _lines("v_cmp", _FLOAT, _FLOATS)),
    table(
        "vector",
        _lines("v_cmpx", _INTEGER, _INTEGERS) | _lines("v_cmpx", _FLOAT, _FLOATS),
        implied={"SD": "exec"},
    ),
    table("vector", {"v_cmp_class_f32": "SD.mask = (class_of(S0.f32) & S1.u32) != 0"}),
)
