"""PyTorch's own criteria on a virtual MI100: PyTorch on the CPU is the reference, the library is under test.

A sample by default at the first and the last API level, with images that other tests compile as well; the
other levels and samples of the grids are among the slow tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kernels.flash.backward_settings import WIDTHS
from tests.support.runtime import build_objects

from .grids import GRIDS, LEVELS, Case, case_of, sample
from .stack import Functional, make_stack, needed, plan_of

pytestmark = [pytest.mark.compiler, pytest.mark.torch]
FUNCTIONALS: tuple[Functional, ...] = (
    ("fp16", False, "full", 64),
    ("fp16", True, "full", 64),
    ("fp16", False, "window", 32),
    ("fp16", False, "bias", 32),
)
SAMPLE = (
    Case(test="flash", dtype="fp16", heads=10, heads_k=2, seqlen_q=4, seqlen_k=127, scale="l1"),
    Case(test="flash", dtype="fp16", seqlen_q=143, seqlen_k=4, dropout_p=0.22, level="0.12.1b"),
    Case(test="flash", dtype="fp16", seqlen_q=4, seqlen_k=4, causal=True, level="0.13b"),
    Case(test="efficient", dtype="fp16", seqlen_q=103, seqlen_k=8, head_dim=16, causal=True, level="0.14.2b"),
    Case(test="efficient", dtype="fp16", batch=8, seqlen_q=8, seqlen_k=103, dropout_p=0.22, level="0.14.2b"),
    Case(test="mask", dtype="fp16", seqlen_q=8, seqlen_k=408, head_dim=16),
    Case(test="packed", dtype="fp16", heads=16, heads_k=4, head_dim=32, window=(4, 0), lengths=(33, 1, 20)),
    *(
        Case(
            test="nested", dtype="fp16", heads=4, head_dim=32, window=window, lengths=(33, 1, 20), level=level
        )
        for level, window in zip(LEVELS, ((-1, -1), (-1, 0)) * 2, strict=True)
    ),
    *(
        Case(test="inference", dtype="fp16", seqlen_q=5, seqlen_k=9, head_dim=64, level=level)
        for level in LEVELS[::2]
    ),
    Case(test="used keys", dtype="fp16", heads=8, heads_k=8, head_dim=64, lengths=(127, 1), level="0.13b"),
    Case(test="used keys", dtype="fp16", heads=8, heads_k=8, head_dim=64, lengths=(127, 1), level="0.14.2b"),
)


def beyond(found: Iterable[dict[str, Any]]) -> list[tuple[Case, dict[str, Any]]]:
    """Results whose error is above their limit, or NaN. Each case compares something: float16 is never exact
    here."""
    wrong = []
    for one in found:
        case = case_of(one["case"])
        assert all(result["error"] != 0 for result in one["results"] if case.test != "used keys")
        wrong += [(case, result) for result in one["results"] if not result["error"] <= result["limit"]]
    return wrong


@pytest.mark.parametrize(
    "levels", [(LEVELS[0], LEVELS[-1]), pytest.param(LEVELS[1:-1], marks=pytest.mark.slow)]
)
def test_a_sample_of_pytorchs_grids(levels: tuple[str, ...], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    cases = [case for case in SAMPLE if case.level in levels]
    results = make_stack([plan_of(FUNCTIONALS)], build_objects(), levels, tmp_path).run(cases)
    assert beyond(results) == [] and {case_of(result["case"]) for result in results} == set(cases)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("test", GRIDS)
def test_pytorchs_grids(test: str, tmp_path: Path) -> None:
    """24 cases of each grid, of those whose products have at most 2^27 multiplications."""
    pytest.importorskip("torch")
    cases = sample(test, 24, 1 << 27)
    plan = plan_of({needed(case, WIDTHS) for case in cases})
    assert beyond(make_stack([plan], build_objects(), LEVELS, tmp_path).run(cases)) == []
