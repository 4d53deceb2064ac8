"""Options of a setting in the compiled image."""

from __future__ import annotations

from pathlib import Path

from aotforge.compile.compile_plan import compile_one
from tests.support.families import architectures, copy_tiny, plan_of


def test_fused_multiply_add_is_an_option_of_the_setting(tmp_path: Path) -> None:
    """`y + a * x` is one instruction, or two with `enable_fp_fusion` False."""
    root = copy_tiny(tmp_path / "k")
    rules = root / "tiny" / "rules.py"
    plain = 'constants={"BLOCK": 64},'
    rules.write_text(rules.read_text().replace(plain, f'{plain} options={{"enable_fp_fusion": False}},'))
    fused, single = (
        job for job in plan_of(root).jobs if job.label.endswith("fp32:0") or job.label.endswith("fp32:1")
    )
    texts = []
    for number, job in enumerate((fused, single)):
        scratch = tmp_path / str(number)
        scratch.mkdir()
        image = compile_one(job, kernels_root=root, architectures=architectures(), scratch=scratch)
        texts.append("\n".join(line for line in image.asm.splitlines() if line.startswith("\tv_")))
    assert ["v_fma" in text or "v_mac" in text or "v_fmac" in text for text in texts] == [True, False]
    assert "v_mul_f32" in texts[1]
