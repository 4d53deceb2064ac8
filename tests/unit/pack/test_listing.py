"""Listings of packs as text and JSON."""

from __future__ import annotations

import json

import pytest

from aotforge.pack.listing import grid_text, list_images, listing_fields, listing_lines
from aotforge.pack.reader import open_files
from aotforge.pack.writer import write_pack
from aotforge.plan.conditions import when_text
from aotforge.plan.model import GridTerm, Predicate
from tests.unit.pack.samples import sample

PLAN, IMAGES = sample()
ROWS = list_images(open_files(write_pack(PLAN, IMAGES, release="0.0-r1")))


def test_table_has_a_line_per_call_and_a_sum() -> None:
    lines = listing_lines(ROWS)
    assert len(lines) == len(ROWS) + 3
    assert " ".join(lines[0].split()) == "IMAGE KERNEL ARCH TRY THREADS SHARED BYTES STORED CALL GRID WHEN"
    size = sum(len(image.binary) for image in IMAGES)
    assert lines[-2].startswith(f"{len(IMAGES)} images, {size:,} bytes, ")
    (line,) = [
        line
        for line in lines
        if "demo.second" in line
        and "gfx908" in line
        and "dtype = 3, mode = 0" in line
        and "always" not in line
    ]
    when = "X % 16 = 0, -5 <= n <= 1099511627776, n * n * n <= 9, (n * n) % 4294967295 = 0"
    assert when in line
    assert "ceil(n / 64)*n x 1 x ceil(n / 3)" in line


def test_json_has_every_field() -> None:
    rows = json.loads(json.dumps(listing_fields(ROWS)))
    assert len(rows) == len(ROWS)
    row = rows[0]
    assert row["key"] == {"dtype": -1, "mode": 0}
    assert row["digest"] == ROWS[0].digest
    assert row["predicates"][0] == {"values": ["X"], "kind": "multiple", "low": 16, "high": 0}
    assert (row["threads"], row["dynamic_shared_bytes"], row["size"]) == (256, 1024, ROWS[0].size)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(3, 3, "n = 3"), (-(2**63), 16, "n <= 16"), (2, 2**63 - 1, "n >= 2"), (0, 16, "0 <= n <= 16")],
)
def test_ranges_read_as_people_write_them(low: int, high: int, text: str) -> None:
    assert when_text([Predicate(values=("n",), kind="range", low=low, high=high)]) == text


def test_grids_drop_axes_of_one() -> None:
    term = GridTerm(value="n", divisor=1)
    assert grid_text(((), (), ())) == "1"
    assert grid_text(((term,), (), ())) == "n"
    assert grid_text(((), (term,))) == "1 x n"


def test_values_under_one_condition_are_named_together() -> None:
    alike = [Predicate(values=(value,), kind="multiple", low=16) for value in ("Q", "K")]
    other = Predicate(values=("n",), kind="multiple", low=8)
    assert when_text([*alike, other]) == "(Q, K) % 16 = 0, n % 8 = 0"
    assert when_text(()) == "always"
