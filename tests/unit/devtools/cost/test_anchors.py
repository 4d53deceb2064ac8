"""Settings that were measured on hardware: they are among those that the model ranks, and ranks are counted
right."""

from __future__ import annotations

import pytest
import yaml

from benchmarks.cost_anchors import DATA, NAMES, ranked, settings

ANCHORS = yaml.safe_load(DATA.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "anchor", ANCHORS["anchors"], ids=lambda one: f"{one['arch']}-{one['kernel']}-{one['width']}"
)
def test_a_measured_setting_is_one_of_forty(anchor: dict[str, object]) -> None:
    every = settings(ANCHORS, str(anchor["kernel"]))
    assert len(every) == 40 == len({tuple(one.items()) for one in every})
    assert anchor["best"] in [[int(one[name]) for name in NAMES] for one in every]


def test_equal_costs_share_a_rank() -> None:
    costs = {0: 3.0, 1: 2.0, 2: 2.0, 3: 4.0}
    assert [ranked(costs, number) for number in costs] == [(3, 1.5), (1, 1.0), (1, 1.0), (4, 2.0)]
