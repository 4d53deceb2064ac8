"""Features of the Triton language on the virtual GPU: a sample by default, all of them and the page among the
slow tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import triton

from aotforge.errors import ExecutionError
from tests.integration.vgpu.coverage import instructions
from tests.integration.vgpu.coverage.catalogue import FEATURES
from tests.integration.vgpu.coverage.execute import (
    PASSED,
    WRONG,
    compiled,
    difference,
    execute,
    load,
    run,
    run_all,
)
from tests.integration.vgpu.coverage.feature import elementwise, given
from tests.integration.vgpu.coverage.page import ARCHS, PAGE, counts, measure, page
from tests.support.instruction_names import known_instructions
from vgpu.emulator.assembly import assemble, link
from vgpu.emulator.isa import INSTRUCTIONS
from vgpu.emulator.targets import emulated_targets

pytestmark = pytest.mark.compiler
SAMPLE = (
    "i32 << >>",
    "fp16 tl.minimum(a, b)",
    "libdevice.asin fp32",
    "masked copy i8",
    "atomic_add i32",
    "tl.sort(t) fp32",
    "tl.join(x, y) fp16",
    "while",
    "randn",
    "dot fp16, 32x32x32",
)


@pytest.mark.parametrize("arch", ["gfx908", "gfx1100"])
def test_a_sample_of_features(arch: str, tmp_path: Path) -> None:
    outcomes = list(run_all([(FEATURES[name], arch) for name in SAMPLE], tmp_path))
    assert len(outcomes) == len(SAMPLE)
    assert [one for one in outcomes if one.verdict != PASSED] == []


def test_every_instruction_that_is_lacking_has_a_reason() -> None:
    lacking = {name for arch in emulated_targets() for name in instructions.missing(arch)}
    assert len(lacking) > 500
    assert {name for name in lacking if not instructions.reason(name)} == set()
    used = {instructions.reason(name) for name in lacking}
    assert used == set(instructions.REASONS)
    assert PAGE.read_text(encoding="utf-8").endswith("\n".join(instructions.section()) + "\n")


def test_an_instruction_taken_from_the_table_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {name: entry for name, entry in INSTRUCTIONS.items() if name != "s_cvt_f16_f32"}
    monkeypatch.setattr(instructions, "INSTRUCTIONS", names)
    assert "s_cvt_f16_f32" in instructions.missing("gfx1150")
    assert instructions.reason("s_cvt_f16_f32") == ""
    assert "s_cvt_f16_f32" not in instructions.missing("gfx1100")


def test_archs_of_the_table_are_those_of_the_assembler() -> None:
    """What the table restricts to some archs; a name that an arch's assembler does not print is never met."""
    for arch in emulated_targets():
        known = known_instructions(arch)
        restricted = {
            name for name, entry in INSTRUCTIONS.items() if entry.archs and arch.startswith(entry.archs)
        }
        assert {n for n in restricted - known if not n.startswith(("v_mfma_", "v_wmma_"))} == set(), arch


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_page_is_what_the_virtual_gpu_does() -> None:
    outcomes = measure()
    for arch in ARCHS:
        passed, all_ = counts(one for one in outcomes.values() if one.arch == arch)
        assert passed >= 0.97 * all_, f"{arch}: {passed} of {all_}"
    assert PAGE.read_text(encoding="utf-8") == page(outcomes, triton.__version__)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "arch"), [("fp8e5", "gfx1100"), ("fp32", "gfx1100"), ("fp32", "gfx1030")])
def test_the_missing_wait_is_all_that_a_race_needs(kind: str, arch: str, tmp_path: Path) -> None:
    """docs/virtual-gpu.md: a wait that the compiler drops. The kernel is run as it is, and with the wait put
    back."""
    feature = FEATURES[f"loop {kind}, 2 stages"]
    image = compiled(feature, arch, tmp_path)
    with pytest.raises(ExecutionError, match="data race in LDS") as found:
        execute(feature, load(image, arch), image)
    assert "which had not been waited for at the barrier" in (found.value.cause or "")
    text = image.asm.replace("\ts_barrier\n", "\ts_waitcnt lgkmcnt(0)\n\ts_barrier\n")
    repaired = replace(image, asm=text, binary=link(assemble(text, arch)))
    assert difference(feature, execute(feature, load(repaired, arch), repaired)) == ""


def test_a_wrong_reference_is_reported(tmp_path: Path) -> None:
    numbers = {"x": given("i32", range(256))}
    feature = elementwise("wrong", "test", "x + 1", "i32", numbers, lambda x: np.where(x == 7, 0, x + 1))
    outcome = run(feature, "gfx908", tmp_path)
    assert outcome.verdict == WRONG
    assert outcome.reason == "o[7] is 8, not 0 (1 of 256 elements differ)"


def test_an_expected_fault_that_does_not_happen_is_wrong(tmp_path: Path) -> None:
    numbers = {"x": given("i32", range(256))}
    feature = elementwise("calm", "test", "x + 1", "i32", numbers, lambda x: x + 1, expects="a fault")
    assert run(feature, "gfx908", tmp_path).verdict == WRONG
