"""Cases are dispatched to every image, and to the launch that the rules select."""

from __future__ import annotations

from functools import cache

import pytest

from aotforge.errors import RulesError, UnsupportedError
from aotforge.plan.families import load_families
from aotforge.plan.model import Plan
from aotforge.verify.interpreter.dispatch import Use, Values, launch_of, uses_of
from aotforge.verify.invocation import load_cases
from tests.support.families import FAKE_TOOLCHAIN, PROJECT, plan_of
from tests.support.source_launches import select

ROOT = PROJECT / "kernels"
FOLDERS = {loaded.family.name: loaded.folder for loaded in load_families(ROOT)}


def uses(plan: Plan) -> dict[str, tuple[Use, ...]]:
    return uses_of(plan, {job.key: job.target.arch for job in plan.jobs})


@cache
def calls(folder: str, kernel: str, keys: tuple[tuple[str, int], ...]) -> tuple[Values, ...]:
    """The values of every case; the tensors behind the addresses are gone."""
    cases = load_cases(ROOT, folder)
    assert cases
    return tuple(case.make().values for case in cases(kernel, dict(keys)))


def calls_of(use: Use) -> tuple[Values, ...]:
    keys = tuple(zip(use.kernel.keys, use.key, strict=True))
    return calls(FOLDERS[use.kernel.family], use.called, keys)


@pytest.mark.parametrize("arch", ["gfx908", "gfx90a"])
def test_every_image_is_reached_by_a_case_that_launches(arch: str) -> None:
    plan = plan_of(ROOT, profile="quick", arch=arch, compiler=FAKE_TOOLCHAIN)
    found = uses(plan)
    assert plan.jobs
    for job in plan.jobs:
        reached = 0
        for use in found[job.key]:
            for values in calls_of(use):
                launch = launch_of(use, values)
                reached += launch is not None and 0 not in launch.grid
        assert reached >= 3, job.label


def test_calls_of_other_functionals_and_calls_that_lack_values() -> None:
    plan = plan_of(ROOT, profile="quick", compiler=FAKE_TOOLCHAIN)
    job = next(j for j in plan.jobs if j.label.startswith("add.add:gfx908:dtype=fp32"))
    use = uses(plan)[job.key][0]
    values = calls_of(use)[6]
    assert launch_of(use, values)
    assert launch_of(use, {**values, "dtype": 2}) is None
    with pytest.raises(RulesError, match="lacks the value n"):
        launch_of(use, {name: v for name, v in values.items() if name != "n"})
    with pytest.raises(UnsupportedError):
        select(load_families(ROOT)[0].family.kernels[0], job.target, {**values, "dtype": 9})
