"""Real attention images executed against float64 within bounds from rounding analysis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from aotforge.errors import ExecutionError
from kernels.flash.call import Bias
from tests.integration.kernels.attention_call import Case, Layout
from tests.integration.vgpu.emulator.attention_images import (
    ALL,
    Images,
    assert_right,
    execute,
    launches,
    misses,
    tensors_of,
)
from tests.support.runtime import CACHE
from vgpu.emulator.program import LaunchRequest
from vgpu.memory import Memory

pytestmark = pytest.mark.compiler
Maker = Callable[[str], Images]

VIEW = Layout(order=(0, 2, 1))
UNALIGNED = Layout(order=(1, 0, 2), row_padding=1, offset=37)
BASE = Case(seqlen_q=100, seqlen_k=100, head_dim=64, sm_scale=0.125)
CASES = {
    "ragged": BASE,
    "causal": replace(BASE, window_right=0, seqlen_q=90, seqlen_k=150),
    "bottom right": replace(BASE, window_right=60, seqlen_q=90, seqlen_k=150),
    "one row": replace(BASE, seqlen_q=1, seqlen_k=77),
    "grouped": replace(BASE, heads_q=4, heads_k=2, batch=2, seqlen_q=40, seqlen_k=33),
    "view": replace(BASE, layout=VIEW, heads_q=2, heads_k=2),
    "unaligned": replace(BASE, layout=UNALIGNED, window_right=0),
    "no keys": replace(BASE, seqlen_k=0),
    "rows without keys": replace(BASE, seqlen_q=50, seqlen_k=20, window_right=-30),
    "bf16 causal": replace(BASE, dtype="bf16", head_dim=32, window_right=0),
    "128": replace(BASE, head_dim=128, seqlen_q=140, seqlen_k=70),
}
OTHERS = {
    "gfx90a": "ragged",
    "gfx942": "bf16 causal",
    "gfx950": "ragged",
    "gfx1100": "bf16 causal",
    "gfx1201": "ragged",
}
SLOW = ("gfx90a", "gfx950")
"""gfx942 and the calls below stand for them."""


FIELD = replace(BASE, heads_q=4, heads_k=1, seqlen_q=40, seqlen_k=56)
GFX950 = {
    "head_dim 48": replace(FIELD, head_dim=48, sm_scale=48**-0.5),
    "a bias per query head": replace(FIELD, head_dim=32, bias=Bias()),
}
"""Wrong on gfx950 with AOTriton's images (pytorch#184288)."""


@pytest.fixture(scope="module")
def gfx908(images_of: Maker) -> Images:
    images = images_of("gfx908")
    images.prepare(CASES.values())
    return images


@pytest.mark.parametrize("name", CASES)
def test_gfx908_images_agree_with_float64(gfx908: Images, name: str) -> None:
    schedule = None if CASES[name].window_right is None else 7
    done = execute(CASES[name], gfx908, schedule=schedule)
    assert_right(CASES[name], done.outcome)


def test_gfx950_serves_what_failed_elsewhere() -> None:
    images = Images("gfx950", CACHE, profile="full")
    images.prepare(GFX950.values())
    for case in GFX950.values():
        assert_right(case, execute(case, images).outcome)


@pytest.mark.parametrize(
    "arch", [pytest.param(arch, marks=[pytest.mark.slow] if arch in SLOW else []) for arch in OTHERS]
)
def test_other_archs_images_agree_with_float64(images_of: Maker, arch: str) -> None:
    case = CASES[OTHERS[arch]]
    images_of(arch).prepare([case])
    for schedule in (None, 11):
        assert_right(case, execute(case, images_of(arch), schedule=schedule).outcome)


def test_results_depend_on_neither_garbage_nor_schedule_nor_threads(gfx908: Images) -> None:
    images = gfx908
    case = CASES["causal"]
    one = execute(case, images)
    for schedule, seed in ((None, 99), (3, 1), (4, 5)):
        other = execute(case, images, schedule=schedule, seed=seed)
        for name in ALL:
            assert np.array_equal(getattr(one.outcome, name), getattr(other.outcome, name), equal_nan=True)
        counts = {label: report.counts for label, report in other.reports.items()}
        assert counts == {label: report.counts for label, report in one.reports.items()}


def test_a_wrong_scale_is_caught(gfx908: Images) -> None:
    case = CASES["ragged"]
    done = execute(replace(case, sm_scale=case.sm_scale * 1.01), gfx908)
    assert all(ratio > 1 for name, ratio in misses(case, done.outcome).items())


def test_a_buffer_that_is_too_small_is_reported_with_its_name_and_the_instruction(gfx908: Images) -> None:
    images, case = gfx908, CASES["ragged"]
    tensors = tensors_of(case)
    launch = launches(case, images.target, tensors)[0]
    buffers = {name: tensor.storage for name, tensor in tensors.items()}
    buffers["Out"] = buffers["Out"][:-2000]
    job = images.job_of(launch)
    arguments = [float(v) if launch.types[n] == "fp32" else v for n, v in launch.arguments.items()]
    lds = images.image(job).resources.dynamic_shared_bytes
    with pytest.raises(ExecutionError, match=r"writes \d+ bytes of global memory outside") as caught:
        images.program(job).launch(
            LaunchRequest(grid=launch.grid, arguments=arguments, memory=Memory(buffers), lds_bytes=lds)
        )
    assert "from the start of Out" in caught.value.cause
    assert "global_store" in caught.value.cause
    assert "lane" in caught.value.cause
    with pytest.raises(ExecutionError, match="LDS"):
        memory = Memory({name: tensor.storage for name, tensor in tensors.items()})
        images.program(job).launch(
            LaunchRequest(grid=launch.grid, arguments=arguments, memory=memory, lds_bytes=lds - 64)
        )
    with pytest.raises(ExecutionError, match="without ending"):
        images.program(job).launch(
            LaunchRequest(grid=launch.grid, arguments=arguments, memory=memory, lds_bytes=lds, limit=100)
        )


def test_a_missing_argument_or_an_empty_grid_is_refused(gfx908: Images) -> None:
    images = gfx908
    launch = launches(CASES["ragged"], images.target, tensors_of(CASES["ragged"]))[0]
    program = images.program(images.job_of(launch))
    with pytest.raises(ExecutionError, match="arguments"):
        program.launch(LaunchRequest(grid=(1, 1, 1), arguments=[0], memory=Memory({})))
    with pytest.raises(ExecutionError, match="0 workgroups along x"):
        program.launch(
            LaunchRequest(grid=(0, 1, 1), arguments=list(launch.arguments.values()), memory=Memory({}))
        )
