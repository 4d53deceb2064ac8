"""Conditions of settings: their predicates, their text, and the order in which settings are tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.plan.conditions import hints, predicate, tries, when_text
from aotforge.plan.model import Predicate
from aotforge.rules import Argument, Between, Condition, Equals, MultipleOf, Setting
from tests.support.families import FAKE_TOOLCHAIN, copy_tiny, plan_of

SHORT, LONG = Between(value="n", high=100), Between(value="n", low=101)
ALIGNED = (Predicate(values=("X",), kind="multiple", low=16),)


@pytest.mark.parametrize(
    ("condition", "wanted", "text"),
    [
        (
            Equals(value="stride", to=1),
            Predicate(values=("stride",), kind="range", low=1, high=1),
            "stride = 1",
        ),
        (MultipleOf(value="k", of=64), Predicate(values=("k",), kind="multiple", low=64), "k % 64 = 0"),
        (
            Between(value=("m", "n"), low=0, high=4096),
            Predicate(values=("m", "n"), kind="range", low=0, high=4096),
            "0 <= m * n <= 4096",
        ),
        (
            MultipleOf(value=("m", "n"), of=256),
            Predicate(values=("m", "n"), kind="multiple", low=256),
            "(m * n) % 256 = 0",
        ),
        (
            Equals(value=("m", "m"), to=9),
            Predicate(values=("m", "m"), kind="range", low=9, high=9),
            "m * m = 9",
        ),
    ],
)
def test_conditions_and_their_text(condition: Condition, wanted: Predicate, text: str) -> None:
    assert predicate(condition) == wanted
    assert when_text([wanted]) == text


def test_every_setting_without_hints_follows_those_with_hints() -> None:
    settings = (Setting(when=(SHORT,)), Setting(when=(LONG,), unaligned=False), Setting())
    short, long = (predicate(SHORT),), (predicate(LONG),)
    assert list(tries(settings, ALIGNED)) == [
        (0, True, short + ALIGNED),
        (1, True, long + ALIGNED),
        (2, True, ALIGNED),
        (0, False, short),
        (2, False, ()),
    ]


def test_tries_that_no_call_reaches_are_left_out() -> None:
    settings = (Setting(when=(SHORT,)), Setting(num_warps=8, when=(SHORT,)), Setting())
    assert [(number, hinted) for number, hinted, _ in tries(settings, ())] == [(0, True), (2, True)]


def test_hints_of_one_have_no_predicate() -> None:
    arguments = [
        Argument(name=name, type="*fp16", value=value, divisible_by=divisor)
        for name, value, divisor in (("x", "X", 16), ("also_x", "X", 16), ("y", "Y", 1), ("z", "Z", None))
    ]
    assert hints(arguments) == ALIGNED


def test_a_small_call_on_unaligned_tensors_keeps_its_small_block(tmp_path: Path) -> None:
    """RMSNorm with 100 columns and an odd pointer ran the block of 8192 columns."""
    root = copy_tiny(tmp_path / "k")
    rules = root / "tiny" / "rules.py"
    text = rules.read_text()
    small = (
        'return (Setting(constants={"BLOCK": 32}, when=(Between(value="n", high=100),), num_warps=1), large,'
    )
    rules.write_text(text.replace("return (large,", small))
    plan = plan_of(root, compiler=FAKE_TOOLCHAIN)
    choices = plan.kernels[0].functionals[0].choices
    labels = {job.key: job.label.rpartition(":")[2] for job in plan.jobs}
    assert [labels[choice.job] for choice in choices] == ["0", "1", "2", "0u", "2u"]
    assert [choice.grid[0][0].divisor for choice in choices] == [32, 512, 64, 32, 64]
    assert [when_text(choice.predicates) for choice in choices[3:]] == ["n <= 100", "always"]
