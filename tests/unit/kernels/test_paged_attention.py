"""Attention over pages: the reference against its definition, splits, and settings that fit an arch."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aotforge.devtools.cost.candidates import CostRequest, find_candidates
from aotforge.devtools.tune.search import candidates, fitting
from aotforge.errors import RulesError
from aotforge.rules import DTYPE_NUMBERS, Target
from kernels.flash_paged import same_precision
from kernels.flash_paged.cases import cases
from kernels.flash_paged.problems import Problem, problems
from kernels.flash_paged.reference import attention, combined, complete, partial_results
from kernels.flash_paged.rules import FAMILY, attention_settings
from tests.support.families import PROJECT, architectures, plan_project

GFX908 = Target(arch="gfx908", vendor="amd", warp_size=64, matrix="MFMA", shared_bytes=65536)
KEYS = {"dtype": DTYPE_NUMBERS["bf16"], "cache": DTYPE_NUMBERS["fp8e4nv"], "head_dim": 64}
PROBLEMS = dict(problems(KEYS))


def by_definition(problem: Problem, sequence: int, i: int, head: int) -> tuple[np.ndarray, float]:
    """One query of one head, key by key."""
    numbers, table = problem.numbers(), problem.table()
    q = numbers["Q"][problem.starts()[sequence] + i, head]
    n_k, last = problem.keys[sequence], i + problem.keys[sequence] - problem.queries[sequence]
    logits, rows = ([float(numbers["sinks"][head])], [np.zeros(64)]) if problem.sinks else ([], [])
    for j in range(n_k):
        if (problem.causal and j > last) or (problem.window_left >= 0 and j < last - problem.window_left):
            continue
        place = (table[sequence, j // problem.page_size], j % problem.page_size, head // problem.group)
        score = float(q @ numbers["K"][place]) * problem.scales_q[0].item(head) * problem.sm_scale
        logits.append(problem.softcap * math.tanh(score / problem.softcap) if problem.softcap else score)
        rows.append(numbers["V"][place] * problem.scales_q[1].item(head))
    if not logits:
        return np.zeros(64), math.inf
    weights = np.exp(np.array(logits) - max(logits))
    return weights @ np.array(rows) / weights.sum(), max(logits) + math.log(weights.sum())


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_reference_is_the_definition(name: str) -> None:
    problem = PROBLEMS[name]
    for sequence, n_q in enumerate(problem.queries):
        results = attention(problem, sequence)
        for i, head in np.ndindex(min(n_q, 3), problem.heads_q):
            out, lse = by_definition(problem, sequence, i, head)
            assert results.out.value[i, head] == pytest.approx(out, abs=1e-12)
            assert results.lse.value[i, head] == pytest.approx(lse, abs=1e-12)


@pytest.mark.parametrize("name", [name for name, problem in PROBLEMS.items() if problem.splits > 1])
@pytest.mark.parametrize("sinks", [False, True])
def test_splits_make_the_complete_result(name: str, sinks: bool) -> None:
    problem = replace(PROBLEMS[name], sinks=sinks)
    parts, unsplit = partial_results(problem), complete(problem)
    together = combined(problem, parts.out.value, parts.lse.value)
    np.testing.assert_allclose(together.out.value, unsplit.out.value, atol=1e-12)
    np.testing.assert_allclose(together.lse.value, unsplit.lse.value, atol=1e-12)
    without_last = np.where(np.arange(problem.splits) == problem.splits - 1, -np.inf, parts.lse.value)
    lost = combined(problem, parts.out.value, without_last).out
    assert (unsplit.out.error < np.abs(lost.value - unsplit.out.value)).any()


def test_every_case_has_an_expectation_that_the_same_precision_meets() -> None:
    for kernel in FAMILY.kernels:
        for case in cases(kernel.name, KEYS):
            invocation = case.make()
            expected = invocation.expected()
            assert expected.keys() == invocation.outputs.keys()
            for name, one in expected.items():
                for same in getattr(one, "same_precision", ()):
                    assert one.compare(same).violations(name) == (), (kernel.name, case.name)


def test_pages_are_permuted_and_unused_ones_are_not_numbers() -> None:
    problem = PROBLEMS["lengths around a page"]
    used = [page for row, n in zip(problem.table(), problem.keys, strict=True) for page in row[: -(-n // 16)]]
    assert len(set(used)) == len(used) == problem.pages - 2
    assert used != sorted(used)
    invocation = next(c for c in cases("paged_attn", KEYS) if c.name == "lengths around a page").make()
    stored = invocation.inputs["K"].bits()
    assert ((stored == 0x7F) | problem.used()).all()  # the pattern of e4m3's NaN
    assert same_precision.rounded(math.nan, "fp8e4nv") != same_precision.rounded(math.nan, "fp8e4nv")


def test_settings_beyond_shared_memory_are_refused_before_a_compiler_runs(tmp_path: Path) -> None:
    kernel = next(one for one in FAMILY.kernels if one.name == "paged_attn")
    wide: dict[str, int | str | bool] = {"dtype": "fp16", "cache": "fp16", "width": 128}
    assert kernel.shared_bytes is not None
    for arch in ("gfx906", "gfx908", "gfx1030", "gfx1100", "gfx1201"):
        target = architectures().find(arch).target(arch)
        settings = attention_settings(target, wide)
        assert settings and all(kernel.shared_bytes(wide, one) <= target.shared_bytes for one in settings)
    request = CostRequest(
        root=PROJECT, cache=tmp_path, images=("paged_attn",), arch="gfx906",
        settings=({"BLOCK_N": "128", "num_stages": "5"},), keys={"dtype": "fp16", "width": "128"},
    )  # fmt: skip
    wanted = r"a setting needs at least 131,072 bytes of shared memory, gfx906 has 65,536"
    with pytest.raises(RulesError, match=wanted):
        find_candidates(request)


def test_tune_proposes_no_setting_beyond_shared_memory() -> None:
    kernel = next(one for one in FAMILY.kernels if one.name == "paged_attn")
    wide: dict[str, int | str | bool] = {"dtype": "fp16", "cache": "fp16", "width": 128}
    last, small = attention_settings(GFX908, wide)[-1], replace(GFX908, shared_bytes=16384)
    every = candidates(last, small)
    assert fitting(every, kernel, wide, last, GFX908) == every
    kept = fitting(every, kernel, wide, last, small)
    beyond = {(one["BLOCK_M"], one["BLOCK_N"], one["num_stages"]) for one in every if one not in kept}
    rows = (16, 32, 64, 128)
    assert kept and beyond == {(128, keys, stages) for keys in (16, 32, 64) for stages in (1, 2)} | {
        (m, 64, 2) for m in rows
    }


def test_serving_has_attention_alone_and_core_none_of_its_images() -> None:
    plan = plan_project(PROJECT, archs=["gfx908"], profile="serving")
    assert {job.family for job in plan.jobs} == {"flash", "flash_paged"}
    # of 8 pairs of types and 3 widths each two of attention and one of writing; of 2 and 3 one that combines
    assert len([job for job in plan.jobs if job.family == "flash_paged"]) == 24 * 3 + 6
    assert "flash_paged" not in {job.family for job in plan_project(PROJECT, archs=["gfx908"]).jobs}
