"""Images with tensors of every element type, executed and compared: sound ones pass, a wrong element of each
fails."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aotforge.verify.check_image import check_image
from aotforge.verify.verdict import Verdict
from aotforge.verify.verify_plan import image_tasks
from tests.integration.release.real import CACHE
from tests.support.families import PROJECT, plan_of
from tests.support.verified import compiled_images

pytestmark = pytest.mark.compiler

TYPES = PROJECT / "tests" / "fixtures" / "kernels_types"


def verdicts(root: Path) -> dict[str, Verdict]:
    plan = plan_of(root)
    tasks = image_tasks(plan, compiled_images(plan, root), root)
    return {
        task.label.split("dtype=")[1].split(":")[0]: check_image(task, kernels_root=root, cache=CACHE)
        for task in tasks
    }


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    root = tmp_path / "k"
    shutil.copytree(TYPES, root, ignore=shutil.ignore_patterns("__pycache__"))
    return root


def test_every_type_is_verified() -> None:
    found = verdicts(TYPES)
    assert len(found) == 14
    assert {name: (one.outcome, one.failure) for name, one in found.items()} == dict.fromkeys(
        found, ("passed", "")
    )
    assert all({output.name for output in one.outputs} == {"out", "positive"} for one in found.values())


def test_one_wrong_element_fails_in_every_type(planted: Path) -> None:
    source = planted / "types" / "twice.py"
    wrong = (
        "tl.store(out + at, tl.where(at == 99, tl.load(x + at - 1, mask=(at == 99) & (at < n)), "
        "double).to(out.dtype.element_ty), mask=at < n)"
    )
    text = source.read_text()
    plain = "tl.store(out + at, double.to(out.dtype.element_ty), mask=at < n)"
    assert plain in text
    rules = planted / "types" / "rules.py"
    rules.write_text(
        rules.read_text().replace('"i1", "i8", "i16", ', '"i8", ').replace('"u8", "u16", "u32", ', "")
    )
    source.write_text(text.replace(plain, wrong))
    found = verdicts(planted)
    assert {name: one.outcome for name, one in found.items()} == dict.fromkeys(found, "failed")
    for name in ("i8", "i32", "i64", "u64"):
        assert "out is wrong in 1 of 100 elements; the first at (99,) is " in found[name].failure
