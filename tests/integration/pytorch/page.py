"""docs/pytorch-acceptance.md: errors of the library on PyTorch's grids beside what PyTorch allows, measured on a virtual MI100.

    python -m tests.integration.pytorch.page [--cases N] [--work W] [--write]

N cases of each grid are executed, of those whose products have at most W multiplications. Without --write the page is printed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotforge.plan.model import Plan
from kernels.flash.backward_settings import WIDTHS
from tests.support.runtime import ROOT, build_objects

from .grids import GRIDS, LEVELS, SEED, Case, case_of, sample
from .stack import make_stack, needed, plan_of

PAGE = ROOT / "docs" / "pytorch-acceptance.md"
CASES, WORK = 24, 1 << 27
_TITLES = {
    "flash": "test_flash_attention_vs_math_ref_grads",
    "efficient": "test_mem_efficient_attention_vs_math_ref_grads",
    "mask": "test_mem_efficient_attention_attn_mask_vs_math_ref_grads",
    "packed": "test_varlen_vs_sdpa",
    "used keys": "test_seqused_k_kv_cache",
}
_HEAD = """# PyTorch's acceptance tests on a virtual MI100

This page is generated: `python -m tests.integration.pytorch.page --cases {cases} --work {work} --write`.
PyTorch on the CPU is the reference, its math back end in float32 or float64.
The library, built by this project, is under test on the [virtual GPU](virtual-gpu.md) (gfx908).
Parameters and factors are those of PyTorch 2.13's tests on ROCm with AOTriton.

An error may be as large as a factor times the error of PyTorch's math back end in the tensors' own precision,
or 1e-5.
`test_varlen_vs_sdpa` allows twice that error, measured with projections around attention, and a rounding.

Of each grid a sample with seed {seed} is executed, in which every value of a parameter occurs that a small
enough call has.
API levels take turns: {levels}.
Sequences of `test_varlen_vs_sdpa` have at most 160 tokens instead of 1024.
Image plan: settings `{settings}`, sources `{sources}`.
"""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A case and one of its results."""

    case: Case
    result: str
    error: float
    reference_error: float
    limit: float

    @property
    def passed(self) -> bool:
        """NaN does not."""
        return self.error <= self.limit

    @property
    def factor(self) -> float:
        """0 where the reference is exact or the error below 1e-5."""
        return self.error / self.reference_error if self.reference_error and self.error > 1e-5 else 0.0


def lines_of(found: Iterable[dict[str, Any]]) -> list[Line]:
    """Of a worker's results."""
    lines = []
    for one in found:
        for result in one["results"]:
            numbers = {key: result[key] for key in ("error", "reference_error", "limit")}
            lines.append(Line(case=case_of(one["case"]), result=result["name"], **numbers))
    return lines


def measure(cases: Sequence[Case]) -> tuple[Plan, list[Line]]:
    """Compile what the cases need and execute them. Prints one line per case to standard error."""
    plan = plan_of({needed(case, WIDTHS) for case in cases})
    found = []
    with tempfile.TemporaryDirectory() as folder:
        sys.stderr.write(f"{len(cases)} cases, {len(plan.jobs)} images\n")
        for one in make_stack([plan], build_objects(), LEVELS, Path(folder)).run(cases):
            found.append(one)
            (*lines,) = lines_of([one])
            state = "passed" if all(line.passed for line in lines) else "FAILED"
            sys.stderr.write(f"{state} in {one['seconds']:.1f} s: {lines[0].case.name()}\n")
            sys.stderr.flush()
    return plan, lines_of(found)


def chosen(count: int, most_work: int) -> list[Case]:
    """The sample of every grid."""
    return [case for test in GRIDS for case in sample(test, count, most_work)]


def page(plan: Plan, lines: Sequence[Line], count: int, most_work: int) -> str:
    """The page's text."""
    head = _HEAD.format(
        cases=count, work=most_work, seed=SEED, levels=", ".join(LEVELS),
        settings=plan.settings_digest[:12], sources=plan.source_digest[:12],
    )  # fmt: skip
    failed = sorted({line.case.name() for line in lines if not line.passed})
    parts = [head, "## Cases\n", *_counts(lines), "\n## Factors\n", *_factors(lines), "\n## Failures\n"]
    return "\n".join([*parts, *([f"- {name}" for name in failed] or ["None."])]) + "\n"


def _counts(lines: Sequence[Line]) -> list[str]:
    rows = ["| test of PyTorch | grid | executed | passed |", "|---|---|---|---|"]
    for test, grid in GRIDS.items():
        cases = {line.case for line in lines if line.case.test == test}
        failed = {line.case for line in lines if line.case.test == test and not line.passed}
        rows.append(f"| {_TITLES[test]} | {len(grid)} | {len(cases)} | {len(cases) - len(failed)} |")
    return rows


def _factors(lines: Sequence[Line]) -> list[str]:
    """The largest factor of each result and dtype, and the smallest allowed among the cases that were executed."""
    groups: dict[tuple[str, str, str], list[Line]] = defaultdict(list)
    for line in lines:
        groups[line.case.test, line.case.dtype, line.result].append(line)
    rows = ["| grid | dtype | result | allowed | measured |", "|---|---|---|---|---|"]
    for (test, dtype, result), members in groups.items():
        allowed = min(line.case.allowed()[result] for line in members)
        measured = max(line.factor for line in members)
        words = (f"{allowed:g}", f"{measured:.2f}" if measured else "below 1e-5")
        if test == "used keys":
            words = ("equal", "equal" if all(line.passed for line in members) else "different")
        rows.append(f"| {test} | {dtype} | {result} | {words[0]} | {words[1]} |")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--work", type=int, default=WORK)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    plan, lines = measure(chosen(options.cases, options.work))
    text = page(plan, lines, options.cases, options.work)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0 if all(line.passed for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
