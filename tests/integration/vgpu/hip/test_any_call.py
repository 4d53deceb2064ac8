"""Calls of everything that PyTorch's gates let through, with the default pack, which must serve all: the
public interface on virtual GPUs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aotforge.base.architectures import load_architectures
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.model import KernelImage
from aotforge.plan.model import JobKey, Plan
from aotforge.plan.selection import Only
from aotforge.rules import GENERAL_SUFFIX
from aotforge.verify.interpreter.dispatch import launch_of, uses_of
from kernels.flash.cases import invocation_of
from tests.integration.pytorch.stack import Stack, stack_of
from tests.support.families import plan_project
from tests.support.runtime import CACHE, ROOT, build_objects

from .any_call import FEW, LEVELS, drawn

pytestmark = pytest.mark.compiler
WORKER = [sys.executable, "-m", "tests.integration.vgpu.hip.any_call_worker"]
SWEEP = range(1000, 1200)
"""Numbers of calls."""


def default_plan(arch: str) -> Plan:
    """Attention as the default profile has it."""
    return plan_project(ROOT, archs=[arch], only=Only(("flash",)))


def launched(plan: Plan, numbers: Iterable[int]) -> set[JobKey]:
    """Images that the calls of these numbers are dispatched to."""
    found = set()
    uses = uses_of(plan, {job.key: job.target.arch for job in plan.jobs})
    for call in map(drawn, numbers):
        for name in ("attn_fwd", *(("bwd_preprocess", "bwd_dk_dv", "bwd_dq") if call.backward else ())):
            values = invocation_of(name, call.case).values
            found |= {
                key
                for key, every in uses.items()
                if any(use.kernel.name == name and launch_of(use, values) is not None for use in every)
            }
    return found


def compiled(plan: Plan, wanted: set[JobKey]) -> list[KernelImage]:
    """An image for every job: its own for those `wanted`, else another of its kernel, which no call
    reaches."""
    kernel_of = {job.key: job.kernel for job in plan.jobs}
    first = {job.kernel: job.key for job in reversed(plan.jobs)}
    own = wanted | {key for kernel, key in first.items() if kernel not in {kernel_of[key] for key in wanted}}
    with Cache(CACHE) as cache:
        made = compile_plan(
            replace(plan, jobs=tuple(job for job in plan.jobs if job.key in own)),
            kernels_root=ROOT / "kernels",
            architectures=load_architectures(ROOT / "manifests"),
            cache=cache,
        )
    other = {kernel_of[key]: image for key, image in made.items()}
    return [made.get(job.key) or replace(other[job.kernel], key=job.key) for job in plan.jobs]


def results(stack: Stack, numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Answers of a worker, which fails unless check_gpu succeeds at every level."""
    done = subprocess.run(
        [*WORKER, str(stack.device), *(f"{level}={path}" for level, path in stack.calls.items())],
        input="".join(f"{number}\n" for number in numbers),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=dict(stack.environment),
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return (json.loads(line) for line in done.stdout.splitlines())


def check(arch: str, numbers: range, folder: Path) -> dict[str, float]:
    """The worst share of its bound of each result."""
    plan = default_plan(arch)
    wanted = launched(plan, numbers)
    assert {job.function.endswith(GENERAL_SUFFIX) for job in plan.jobs if job.key in wanted} == {False, True}
    stack = stack_of([(plan, compiled(plan, wanted))], build_objects(), LEVELS, folder)
    lines = list(results(stack, numbers))
    assert [line for line in lines if "error" in line or max(line["shares"].values()) > 1] == []
    assert [line["number"] for line in lines] == list(numbers)
    worst: dict[str, float] = {}
    for name, share in (item for line in lines for item in line["shares"].items()):
        worst[name] = max(worst.get(name, 0.0), share)
    # a comparison that can fail: nothing computed in 16 bits is exact
    assert min(worst.values()) > 0
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx908", "gfx906", "gfx1030", "gfx1100"])
def test_many_calls_with_the_default_pack(
    arch: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property(f"{len(SWEEP)} calls on {arch}", check(arch, SWEEP, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FEW, FEW + 500, 100))
@pytest.mark.parametrize("arch", ["gfx908", "gfx1100"])
def test_many_calls_of_few_queries(
    arch: str, first: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """`tests.device.attention` makes the same ones on a device."""
    record_property(f"100 calls on {arch}", check(arch, range(first, first + 100), tmp_path))
