"""The Triton language on the CPU, against numpy: a sample by default, every feature of the catalogue among
the slow tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.ttcpu.features import run
from tests.integration.vgpu.coverage.catalogue import FEATURES
from tests.integration.vgpu.coverage.execute import PASSED, run_in_processes
from ttcpu.levels import host_level, host_levels

pytestmark = pytest.mark.compiler
SAMPLE = (
    "i32 << >>", "fp16 tl.minimum(a, b)", "libdevice.asin fp32", "masked copy i8", "atomic_add i32",
    "atomic_add bf16", "tl.sort(t) fp32", "tl.join(x, y) fp16", "while", "randn", "dot fp16, 32x32x32",
    "fp64 to floats", "function with early return", "dot bf16, 32x32x32", "dot_scaled e2m1 e2m1",
    "dot_scaled fp16 e2m1", "tl.map_elementwise(larger, x, 1500 - y) fp32", "fp32 to fp16 toward zero",
    "libdevice.erfinv fp32", "libdevice.cyl_bessel_i1 fp64",
)  # fmt: skip
BELOW_V3 = ("fp16 tl.minimum(a, b)", "masked copy i8", "dot fp16, 32x32x32", "fp32 to fp16 toward zero")
"""What needs a function of a library where the processor has no instruction."""
NOT_SUPPORTED = {
    "inline assembly": "tt.elementwise_inline_asm",
    "inline assembly with two instructions": "tt.elementwise_inline_asm",
}
"""GPU assembly; with a part of the error."""


@pytest.mark.parametrize(
    ("level", "names"), [("x86-64-v2", BELOW_V3), ("x86-64-v3", SAMPLE), ("x86-64-v4-bf16", SAMPLE)]
)
def test_a_sample_of_features(level: str, names: tuple[str, ...], tmp_path: Path) -> None:
    if level not in host_levels():
        pytest.skip("this processor has no AVX-512")
    outcomes = list(run_in_processes(run, [(FEATURES[name], level) for name in names], tmp_path))
    assert len(outcomes) == len(names)
    assert [one for one in outcomes if one.verdict != PASSED] == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_feature(tmp_path: Path) -> None:
    tasks = [(feature, host_level()) for feature in FEATURES.values()]
    outcomes = {one.feature: one for one in run_in_processes(run, tasks, tmp_path)}
    assert outcomes.keys() == FEATURES.keys()
    failed = {name: one.reason for name, one in outcomes.items() if one.verdict != PASSED}
    assert failed.keys() == NOT_SUPPORTED.keys()
    assert all(part in failed[name] for name, part in NOT_SUPPORTED.items())
