"""What general images cost: the file as it is written and read, and the row for a call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aotforge.base.general_costs import GeneralCost, GeneralCosts, general_costs, load_general_costs, written


def row(**changes: Any) -> GeneralCost:
    values = {"arch": "gfx908", "operator": "attn_fwd", "dtype": "fp16", "mask": "full", "dropout": True}
    return GeneralCost(**{**values, "head_dim": 64, "multiple": 2.0, **changes})


ROWS = (
    row(),
    row(head_dim=128, multiple=1.5),
    row(dtype="fp32", dropout=False, multiple=0.7),
    row(mask="bias", dropout=False, multiple=4.0),
    row(operator="attn_bwd", multiple=3.0),
)


def nearest(**changes: Any) -> float | None:
    call: dict[str, Any] = {
        "dtype": "fp16",
        "mask": "full",
        "dropout": True,
        "head_dim": 64,
        "operator": "attn_fwd",
        "arch": "gfx908",
    }
    call |= changes
    found = GeneralCosts(schema=1, costs=ROWS).nearest(call.pop("arch"), call.pop("operator"), **call)
    return found.multiple if found else None


def test_the_row_that_is_most_like_a_call() -> None:
    assert nearest() == 2.0
    assert nearest(dtype="bf16", head_dim=72) == 2.0
    assert nearest(head_dim=512) == 1.5
    assert nearest(dtype="fp32") == 0.7
    assert nearest(mask="bias", dropout=False) == 4.0
    assert nearest(operator="attn_bwd", mask="window") == 3.0
    assert nearest(arch="gfx906") is None
    assert nearest(operator="matmul", mask="") is None


def test_an_archs_rows_are_replaced_in_the_file(tmp_path: Path) -> None:
    other = row(arch="gfx1100", multiple=9.5)
    table = GeneralCosts(schema=1, dates={"gfx1100": "2026-11-27"}, costs=(other, row(multiple=7.0)))
    (tmp_path / "general_costs.yaml").write_text(written(table, "gfx908", ROWS, "2026-11-28"))
    found = load_general_costs(tmp_path)
    assert found.dates == {"gfx1100": "2026-11-27", "gfx908": "2026-11-28"}
    assert found.of("gfx908") == ROWS and found.of("gfx1100") == (other,)
    assert written(found, "gfx908", ROWS, "2026-11-28") == (tmp_path / "general_costs.yaml").read_text()


def test_the_projects_rows_are_of_calls_that_the_default_profile_leaves_to_general_images() -> None:
    rows = general_costs().of("gfx908")
    assert {(one.operator, one.dtype) for one in rows} >= {("attn_fwd", "fp16"), ("attn_bwd", "fp32")}
    assert all(one.dropout or one.mask == "bias" or one.dtype == "fp32" or one.head_dim > 128 for one in rows)
