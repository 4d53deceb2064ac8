"""PyTorch's own criteria on a virtual MI100: PyTorch on the CPU is the reference, the library is under test.

A sample by default, with images that other tests compile as well; the grids among the slow tests (docs/pytorch-acceptance.md).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.runtime import build_objects

from .grids import LEVELS, Case
from .page import CASES, WORK, chosen, lines_of, measure
from .stack import Functional, make_stack, plan_of

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
    Case(test="used keys", dtype="fp16", heads=8, heads_k=8, head_dim=64, lengths=(127, 1), level="0.13b"),
    Case(test="used keys", dtype="fp16", heads=8, heads_k=8, head_dim=64, lengths=(127, 1), level="0.14.2b"),
)


def test_a_sample_of_pytorchs_grids(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    stack = make_stack(plan_of(FUNCTIONALS), build_objects(), LEVELS, tmp_path)
    lines = lines_of(stack.run(SAMPLE))
    assert [line for line in lines if not line.passed] == []
    assert {line.case for line in lines} == set(SAMPLE)
    # each compares something: float16 is never exact here, but the cache of keys is
    assert all(line.error > 0 for line in lines if line.case.test != "used keys")


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_pytorchs_grids() -> None:
    pytest.importorskip("torch")
    _, lines = measure(chosen(CASES, WORK))
    assert lines and [line for line in lines if not line.passed] == []
