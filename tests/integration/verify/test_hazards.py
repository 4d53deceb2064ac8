"""Hazards: an image compiled without its cure fails verification, the image of the plan passes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.plan.model import PlannedKernel
from aotforge.verify.check_image import check_image
from aotforge.verify.verify_plan import image_tasks
from tests.integration.release.real import CACHE
from tests.support.families import PROJECT, plan_of
from tests.support.verified import compiled_images

pytestmark = pytest.mark.compiler

_END = """
    extra = left - tl.max(left, 0)
    total = tl.sum(tl.exp(extra), 0)
    zero = tl.where(total < 0, tl.exp(extra) / total * right + left, 0.0)
    tl.store(out + start + lane, (left + right + zero).to(out.dtype.element_ty), mask=mask)
"""


_WIDEN = {
    "widen.py": """import triton
import triton.language as tl


@triton.jit
def widen(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n).to(y.dtype.element_ty), mask=at < n)
""",
    "rules.py": """from aotforge.rules import Argument, Family, Kernel, Operator, Setting, Term, Value, dtypes

VALUES = (Value(name="x", type="ptr"), Value(name="y", type="ptr"), Value(name="n", type="i32"))
FAMILY = Family(
    name="widen",
    operators=(Operator(name="widen", values=VALUES),),
    kernels=(
        Kernel(
            name="widen", source="widen.py", function="widen", operator="widen", choices=(),
            arguments=(
                Argument(name="x", type="*{source}", value="x"),
                Argument(name="y", type="*{target}", value="y"),
                Argument(name="n", type="i32", value="n"),
            ),
            settings=lambda target, functional: (Setting(constants={{"BLOCK": 256}}, num_stages=1),),
            grid=((Term(value="n", divisor=256),),),
        ),
    ),
)
""",
    "cases.py": """from aotforge.verify.calls import Calls, Tensor

CALLS = Calls(
    compute=lambda tensors, values, total: {{"y": tensors["x"]}},
    inputs={{"x": Tensor(shape=("n",), dtype="{source}")}},
    outputs={{"y": Tensor(shape=("n",), dtype="{target}")}},
    shapes=[{{"n": 256}}, {{"n": 5000}}],
    typical={{"n": 4096}},
)
cases, shaped, SHAPE = CALLS.cases, CALLS.shaped, CALLS.typical
""",
}


def _with_key(kernel: PlannedKernel, old: str, new: str) -> PlannedKernel:
    """The kernel with the one image under another key, and no other."""
    functionals = (
        replace(one, choices=tuple(replace(c, job=new) for c in one.choices if c.job == old))
        for one in kernel.functionals
    )
    return replace(kernel, functionals=tuple(one for one in functionals if one.choices))


def test_an_image_with_a_hazard_fails_and_its_cure_passes(tmp_path: Path) -> None:
    root = tmp_path / "kernels"
    shutil.copytree(PROJECT / "kernels" / "add", root / "add", ignore=shutil.ignore_patterns("__pycache__"))
    source = root / "add" / "add.py"
    text = source.read_text()
    source.write_text(text[: text.index("    tl.store(")] + _END.lstrip("\n"))
    plan = plan_of(root, arch="gfx1100")
    job = next(job for job in plan.jobs if job.label.endswith("fp32:0"))
    assert job.cures == ("dual-issue-parity",)
    raw = replace(job, key="0" * 64, cures=())
    outcomes = {}
    for name, one in {"cured": job, "raw": raw}.items():
        alone = replace(
            plan, jobs=(one,), kernels=tuple(_with_key(kernel, job.key, one.key) for kernel in plan.kernels)
        )
        images = compiled_images(alone, root, tmp_path / name)
        (task,) = image_tasks(alone, images, root)
        outcomes[name] = check_image(task, kernels_root=root, cache=CACHE)
        assert ("::" in images[one.key].asm) or name == "cured"
    assert outcomes["cured"].outcome == "passed", outcomes["cured"].failure
    assert outcomes["raw"].outcome == "failed"
    failures = outcomes["raw"].failure.splitlines()
    assert len(failures) == 1 and failures[0].startswith("hazard dual-issue-parity: ")
    assert outcomes["raw"].outputs == outcomes["cured"].outputs


@pytest.mark.parametrize("arch", ["gfx908", "gfx1201"])
@pytest.mark.parametrize(("source", "target"), [("fp8e5", "bf16"), ("fp8e4nv", "bf16"), ("fp16", "fp8e4nv")])
def test_conversions_fail_without_their_cure(tmp_path: Path, arch: str, source: str, target: str) -> None:
    folder = tmp_path / "kernels" / "widen"
    folder.mkdir(parents=True)
    for name, text in _WIDEN.items():
        (folder / name).write_text(text if name == "widen.py" else text.format(source=source, target=target))
    plan = plan_of(folder.parent, arch=arch)
    outcomes = {}
    for name, cured in (("cured", True), ("raw", False)):
        jobs = tuple(job if cured else replace(job, cures=()) for job in plan.jobs)
        images = compiled_images(replace(plan, jobs=jobs), folder.parent, tmp_path / name)
        (task,) = image_tasks(plan, images, folder.parent)
        outcomes[name] = check_image(task, kernels_root=folder.parent, cache=CACHE)
    assert outcomes["cured"].outcome == "passed", outcomes["cured"].failure
    assert outcomes["raw"].outcome == "failed"
    assert "special numbers: y is wrong in" in outcomes["raw"].failure
    assert "fp8-to-bf16" in plan.jobs[0].cures
