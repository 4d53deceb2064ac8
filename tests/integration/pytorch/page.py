"""A table of the library's errors on PyTorch's grids beside what PyTorch allows, measured on a virtual MI100.

    python -m tests.integration.pytorch.page [--cases N] [--work W] [--record FILE] [--seconds S]

N cases of each grid are executed, of those whose products have at most W multiplications.
With --record results are kept in a file, a JSON line each, and cases that are there with the same images are not executed again; after S
seconds no case is begun, and the command ends with 75 while some are missing. Images are compiled into the cache, and kept there.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotforge.plan.model import Plan
from kernels.flash.backward_settings import WIDTHS
from tests.support.runtime import build_objects

from .grids import GRIDS, LEVELS, SEED, Case, case_of, sample
from .stack import make_stack, needed, plan_of

CASES, WORK = 24, 1 << 27
_TITLES = {
    "flash": "test_flash_attention_vs_math_ref_grads",
    "efficient": "test_mem_efficient_attention_vs_math_ref_grads",
    "mask": "test_mem_efficient_attention_attn_mask_vs_math_ref_grads",
    "packed": "test_varlen_vs_sdpa",
    "used keys": "test_seqused_k_kv_cache",
}
_HEAD = """# PyTorch's acceptance tests on a virtual MI100

`python -m tests.integration.pytorch.page --cases {cases} --work {work}`

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


@dataclass(frozen=True, kw_only=True)
class Record:
    """A file of results, a JSON line each: of a case and the images that it was executed with. Without a path nothing is kept."""

    path: Path | None = None

    def read(self, images: str) -> list[dict[str, Any]]:
        """Results with these images; a line that a kill has cut off is none, and is ended."""
        if self.path is None or not self.path.exists():
            return []
        if not self.path.read_bytes().endswith(b"\n"):
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n")
        found = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                values = json.loads(line)
                if values["images"] == images:
                    found.append(values)
        return found

    def add(self, images: str, result: Mapping[str, Any]) -> None:
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"images": images, **result}) + "\n")


def measure(
    cases: Sequence[Case], record: Record = Record(), seconds: float = math.inf
) -> tuple[Plan, list[Line]]:
    """Compile what the cases need and execute those that are not in the record. Prints one line per case to standard error.

    After `seconds` no case is begun: lines of the missing ones are missing.
    """
    plan = plan_of({needed(case, WIDTHS) for case in cases})
    images = f"{plan.settings_digest} {plan.source_digest}"
    found = {case_of(one["case"]): one for one in record.read(images)}
    missing = [case for case in cases if case not in found]
    sys.stderr.write(f"{len(cases)} cases, {len(missing)} to execute, {len(plan.jobs)} images\n")
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        running = (
            iter(make_stack([plan], build_objects(), LEVELS, Path(folder)).run(missing)) if missing else ()
        )
        for one in running:
            record.add(images, one)
            (*lines,) = lines_of([one])
            found[lines[0].case] = one
            state = "passed" if all(line.passed for line in lines) else "FAILED"
            sys.stderr.write(f"{state} in {one['seconds']:.1f} s: {lines[0].case.name()}\n")
            sys.stderr.flush()
            if time.monotonic() > end:
                break
    return plan, lines_of(found[case] for case in cases if case in found)


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
        if line.result == "call":  # it was refused or failed: there is nothing to measure
            continue
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
    parser.add_argument("--record", type=Path)
    parser.add_argument("--seconds", type=float, default=math.inf)
    options = parser.parse_args()
    cases = chosen(options.cases, options.work)
    plan, lines = measure(cases, Record(path=options.record), options.seconds)
    if missing := len(set(cases)) - len({line.case for line in lines}):
        sys.stderr.write(f"{missing} cases are missing: run the command again\n")
        return 75
    text = page(plan, lines, options.cases, options.work)
    sys.stdout.write(text)
    return 0 if all(line.passed for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
