"""resources.json: every figure of every image, in one order."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from aotforge.release.layout import resources_json
from aotforge.release.model import ImageRecord
from tests.unit.pack.samples import sample

PLAN, IMAGES = sample()
_COUNTS = st.integers(0, 3)
RECORDS = st.lists(
    st.builds(
        lambda label, image, registers: ImageRecord(
            label=label,
            key=f"key of {label}",
            digest=f"{image:064x}",
            resources=replace(IMAGES[0].resources, registers=registers),
        ),
        st.text(max_size=4),
        _COUNTS,
        _COUNTS,
    ),
    unique_by=lambda record: record.label,
    max_size=8,
)


@given(records=RECORDS, random=st.randoms(use_true_random=False))
def test_every_record_is_there_once_in_whatever_order_it_came(
    records: list[ImageRecord], random: Random
) -> None:
    text = resources_json("amd-test", records)
    shuffled = list(records)
    random.shuffle(shuffled)
    assert resources_json("amd-test", shuffled) == text
    tree = json.loads(text)
    found = [
        (label, key, row["digest"], {name: row[name] for name in asdict(IMAGES[0].resources)})
        for row in tree["images"]
        for label, key in zip(row["labels"], row["jobs"], strict=True)
    ]
    wanted = [(r.label, r.key, r.digest, asdict(r.resources)) for r in records]
    assert sorted(found, key=lambda one: one[0]) == sorted(wanted, key=lambda one: one[0])
    distinct = {(r.digest, r.resources.registers) for r in records}
    assert len(tree["images"]) == len(distinct)
    assert [row["labels"][0] for row in tree["images"]] == sorted(row["labels"][0] for row in tree["images"])
