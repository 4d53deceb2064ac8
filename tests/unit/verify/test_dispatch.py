"""Cases are dispatched to every image, and to the launch that the rules select."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice

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
def makers(folder: str, kernel: str, keys: tuple[tuple[str, int], ...]) -> tuple[Callable[[], Values], ...]:
    """Each makes the values of a case, once; the tensors behind the addresses are gone."""
    cases = load_cases(ROOT, folder)
    assert cases
    return tuple(cache(lambda case=case: case.make().values) for case in cases(kernel, dict(keys)))


def calls_of(use: Use) -> Iterator[Values]:
    keys = tuple(zip(use.kernel.keys, use.key, strict=True))
    return (make() for make in makers(FOLDERS[use.kernel.family], use.called, keys))


def test_every_image_is_reached_by_three_cases_that_launch() -> None:
    plan = plan_of(ROOT, profile="quick", arch="gfx908", compiler=FAKE_TOOLCHAIN)
    uses_of_image = uses(plan)
    assert plan.jobs
    for job in plan.jobs:
        launches = (launch_of(use, values) for use in uses_of_image[job.key] for values in calls_of(use))
        reached = (launch for launch in launches if launch is not None and 0 not in launch.grid)
        assert len(list(islice(reached, 3))) == 3, job.label


def test_calls_of_other_functionals_and_calls_that_lack_values() -> None:
    plan = plan_of(ROOT, profile="quick", compiler=FAKE_TOOLCHAIN)
    job = next(j for j in plan.jobs if j.label.startswith("add.add:gfx908:dtype=fp32"))
    use = uses(plan)[job.key][0]
    values = next(islice(calls_of(use), 6, None))
    assert launch_of(use, values)
    assert launch_of(use, {**values, "dtype": 2}) is None
    with pytest.raises(RulesError, match="lacks the value n"):
        launch_of(use, {name: v for name, v in values.items() if name != "n"})
    with pytest.raises(UnsupportedError):
        select(load_families(ROOT)[0].family.kernels[0], job.target, {**values, "dtype": 9})
