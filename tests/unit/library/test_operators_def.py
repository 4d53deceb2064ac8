"""runtime/src/operators.def mirrors kernels/flash/operators.py."""

from __future__ import annotations

import re
from pathlib import Path

from aotforge.rules import Operator
from kernels.flash.operators import ATTN_BWD, ATTN_DROPOUT_MASK, ATTN_FWD

DEFINITION = Path(__file__).parents[3] / "runtime" / "src" / "operators.def"


def macro(name: str) -> str:
    text = DEFINITION.read_text().replace("\\\n", " ")
    found = re.search(rf"^#define {name}\(X, op\)(.*)$", text, re.MULTILINE)
    assert found, name
    return re.sub(r"(AOTFORGE_ATTN_\w+)\(X, op\)", lambda inner: macro(inner.group(1)), found.group(1))


def interface(operator: Operator) -> list[tuple[str, str]]:
    return [(value.name, value.type) for value in operator.values]


def test_the_same_values_in_the_same_order() -> None:
    for operator in (ATTN_FWD, ATTN_BWD, ATTN_DROPOUT_MASK):
        pairs = re.findall(r"X\(op, (\w+), (\w+)\)", macro(f"AOTFORGE_{operator.name.upper()}"))
        assert [(value, type_) for type_, value in pairs] == interface(operator)


def test_strides_of_a_tensor_stand_together() -> None:
    """The front ends fill them as runs: z, h and the row, then the column where there is one."""
    for operator in (ATTN_FWD, ATTN_BWD, ATTN_DROPOUT_MASK):
        names = [value.name for value in operator.values]
        for first in (
            name for name in names if re.match(r"stride_\w+z$", name) and name.replace("z", "h") in names
        ):
            at = names.index(first)
            stem = first.removesuffix("z")
            assert names[at + 1] == f"{stem}h"
            assert names[at + 2] in (f"{stem}m", f"{stem}n")
