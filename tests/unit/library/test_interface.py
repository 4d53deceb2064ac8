"""Comparison of the library's operators with those of the rules."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.errors import RulesError
from aotforge.library.interface import DEFINITION, check_interfaces, library_operators
from kernels.flash.operators import ATTN_BWD, ATTN_DROPOUT_MASK, ATTN_FWD
from tests.support.families import plan_project

ROOT = Path(__file__).parents[3]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for part in ("runtime/src", "kernels", "manifests", "requirements"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_operators_as_the_library_has_them() -> None:
    found = library_operators(ROOT / DEFINITION)
    assert found == {operator.name: operator for operator in (ATTN_FWD, ATTN_BWD, ATTN_DROPOUT_MASK)}


def test_this_projects_library_and_rules_agree() -> None:
    plan = plan_project(ROOT, archs=["gfx908"], profile=None)
    assert {"attn_fwd", "attn_bwd"} & {operator.name for operator in plan.operators}
    check_interfaces(ROOT, [plan])


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ("X(op, ptr, Q) X(op, ptr, K)", "X(op, ptr, K) X(op, ptr, Q)", "value 0 is K:ptr in the library"),
        ("X(op, i64, stride_qz)", "X(op, i32, stride_qz)", "stride_qz:i32 in the library and stride_qz:i64"),
        (" \\\n  X(op, ptr, persistent_atomic_counter)", "", "is missing in the library"),
    ],
    ids=["order", "type", "missing"],
)
def test_a_difference_is_named(root: Path, old: str, new: str, cause: str) -> None:
    plan = plan_project(root, archs=["gfx908"], profile=None)
    definition = root / DEFINITION
    text = definition.read_text()
    assert old in text
    definition.write_text(text.replace(old, new, 1))
    served = library_operators(definition)["attn_fwd"]
    with pytest.raises(RulesError) as caught:
        check_interfaces(root, [plan])
    assert caught.value.exit_code == 4
    rules = root / "kernels" / "flash"
    for part in ("attn_fwd", served.interface_hash(), ATTN_FWD.interface_hash(), str(definition), str(rules)):
        assert part in caught.value.what
    assert cause in caught.value.cause


def test_a_plan_needs_not_all_operators_and_may_have_others(root: Path) -> None:
    plan = plan_project(root, archs=["gfx908"], profile=None)
    other = replace(ATTN_FWD, name="not_the_librarys", values=())
    check_interfaces(root, [replace(plan, operators=(other,))])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#define AOTFORGE_A(X, op) X(op, i32)",
        "#define AOTFORGE_A(X, op) AOTFORGE_B(X, op)",
        "#define AOTFORGE_A(X, op) X(op, i32, a) AOTFORGE_A(X, op)",
    ],
)
def test_what_is_no_definition_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "operators.def").write_text(text)
    with pytest.raises(RulesError, match=r"operators\.def"):
        library_operators(tmp_path / "operators.def")
    with pytest.raises(RulesError, match="cannot be read"):
        library_operators(tmp_path / "nowhere.def")


def test_strides_of_a_tensor_stand_together() -> None:
    """The front ends fill them as runs: z, h and the row, then the column where there is one."""
    for operator in (ATTN_FWD, ATTN_BWD, ATTN_DROPOUT_MASK):
        names = [value.name for value in operator.values]
        for at, first in enumerate(names):
            stem = first.removesuffix("z")
            if re.match(r"stride_\w+z$", first) and f"{stem}h" in names:
                assert names[at + 1] == f"{stem}h" and names[at + 2] in (f"{stem}m", f"{stem}n")
