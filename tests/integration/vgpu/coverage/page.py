"""docs/virtual-gpu-coverage.md: what the virtual GPU executes of the Triton language, from the outcomes of
every feature.

    python -m tests.integration.vgpu.coverage.page [--arch ARCH ...] [--only WORDS] [--write]

Without --write the counts and every feature that did not pass are printed. `AOTFORGE_CACHE` names a folder
for compiled images.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.integration.vgpu.coverage.catalogue import FEATURES
from tests.integration.vgpu.coverage.execute import NOT_COMPILED, PASSED, WRONG, Outcome, run_all
from tests.integration.vgpu.coverage.instructions import section
from tests.support.families import PROJECT

PAGE = PROJECT / "docs" / "virtual-gpu-coverage.md"
ARCHS = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")
_CELL = 76
_RACE = "kernel has a data race in LDS"
DEFECTS = {
    (f"loop {kind}, 2 stages", arch): (_RACE, "LLVM drops a wait before s_barrier: see virtual-gpu.md")
    for kind, arch in (("fp32", "gfx1030"), ("fp32", "gfx1100"), ("fp8e5", "gfx1100"))
}
"""Compilers' defects that the virtual GPU reports: the beginning of its message, and what the page shows
instead."""
_HEAD = """# Coverage of the virtual GPU

This page is generated: `python -m tests.integration.vgpu.coverage.page --write`.
It lists which features of the Triton language the [virtual GPU](virtual-gpu.md) executes correctly.

Each feature is one small kernel of `tests/integration/vgpu/coverage/catalogue`.
Triton {triton} compiles it for each arch, without a GPU.
The virtual GPU executes it with every check on: waits, data races, barriers, uninitialised data, bounds.
The results are compared with numpy, in float64 or exact integers.

`pytest -m slow tests/integration/vgpu/coverage` executes all of them and fails when this page differs.
"""
Outcomes = Mapping[tuple[str, str], Outcome]


def measure(archs: Sequence[str] = ARCHS, only: str = "") -> Outcomes:
    """Outcomes by feature and arch of all features whose group and name contain `only`."""
    tasks = [
        (f, arch) for arch in archs for f in FEATURES.values() if re.search(only, f"{f.group}: {f.name}")
    ]
    with tempfile.TemporaryDirectory() as temporary:
        folder = image_folder(Path(temporary))
        return {(one.feature, one.arch): one for one in run_all(tasks, folder)}


def image_folder(temporary: Path) -> Path:
    """Where compiled features are kept: in `AOTFORGE_CACHE`, or in a temporary folder."""
    folder = Path(os.environ.get("AOTFORGE_CACHE", temporary)) / "coverage"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def page(outcomes: Outcomes, triton: str) -> str:
    """The page's text."""
    parts = [_HEAD.format(triton=triton), "## By group\n", *_groups(outcomes)]
    unsupported = [one for one in outcomes.values() if one.verdict not in {PASSED, NOT_COMPILED}]
    refused = [one for one in outcomes.values() if one.verdict == NOT_COMPILED]
    parts += ["\n## Not executed correctly\n", *_holes(unsupported)]
    parts += ["\n## Not compiled\n", "Triton itself refuses these; they do not count.\n", *_holes(refused)]
    parts += section()
    return "\n".join(parts) + "\n"


def counts(outcomes: Iterable[Outcome]) -> tuple[int, int]:
    """How many passed, and how many Triton compiles."""
    found = [one for one in outcomes if one.verdict != NOT_COMPILED]
    return sum(one.verdict == PASSED for one in found), len(found)


def _groups(outcomes: Outcomes) -> list[str]:
    """Features that pass, of those that Triton compiles, by group and arch."""
    archs = [arch for arch in ARCHS if any(key[1] == arch for key in outcomes)]
    groups = list(dict.fromkeys(feature.group for feature in FEATURES.values()))
    lines = [f"| features | {' | '.join(archs)} |", "|---|" + "---|" * len(archs)]
    for group in groups:
        cells = []
        for arch in archs:
            chosen = [
                one for key, one in outcomes.items() if key[1] == arch and FEATURES[key[0]].group == group
            ]
            passed, all_ = counts(chosen)
            cells.append(f"{passed} of {all_}")
        lines.append(f"| {group} | {' | '.join(cells)} |")
    total = [counts(one for key, one in outcomes.items() if key[1] == arch) for arch in archs]
    lines.append(f"| all | {' | '.join(f'{passed} of {all_}' for passed, all_ in total)} |")
    lines.append(
        f"| percent | {' | '.join(f'{100 * passed / max(all_, 1):.1f}' for passed, all_ in total)} |"
    )
    return lines


def _holes(outcomes: Sequence[Outcome]) -> list[str]:
    """A table of reasons with their features and archs."""
    if not outcomes:
        return ["None."]
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in outcomes:
        found[one.feature, _reason(one)].append(one.arch)
    lines = ["| feature | archs | reason |", "|---|---|---|"]
    order = {name: place for place, name in enumerate(FEATURES)}
    for (feature, reason), archs in sorted(found.items(), key=lambda item: (order[item[0][0]], item[0][1])):
        name = feature.replace("|", "\\|")
        lines.append(f"| {name} | {', '.join(sorted(archs, key=ARCHS.index))} | {reason} |")
    return lines


def _reason(one: Outcome) -> str:
    """The reason without what differs from run to run or arch to arch: lines, registers, element values."""
    start, cause = DEFECTS.get((one.feature, one.arch), ("", ""))
    if cause and one.reason.startswith(start):
        return cause
    text = re.sub(r"^line \d+: ", "", one.reason)
    if match := re.search(r"unknown instruction (\w+)", text):
        text = f"unknown instruction `{match[1]}`"
    if one.verdict == WRONG:
        text = "wrong result: " + text
    text = re.sub(r"\s+", " ", text).replace("|", "\\|")
    return text if len(text) <= _CELL else text[: _CELL - 4] + " ..."


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Execute every feature on the virtual GPU.")
    parser.add_argument("--arch", action="append", choices=ARCHS, help="may be repeated; default: all")
    parser.add_argument("--only", default="", help="a regular expression on `group: name`")
    parser.add_argument("--write", action="store_true", help="write the page")
    options = parser.parse_args()
    import triton

    start = time.monotonic()
    outcomes = measure(options.arch or ARCHS, options.only)
    if options.write:
        PAGE.write_text(page(outcomes, triton.__version__))
    for one in sorted(outcomes.values(), key=lambda one: (one.arch, one.verdict)):
        if one.verdict != PASSED:
            sys.stdout.write(f"{one.arch} {one.verdict} | {one.feature} | {one.reason}\n")
    for arch in options.arch or ARCHS:
        passed, all_ = counts(one for one in outcomes.values() if one.arch == arch)
        sys.stdout.write(f"{arch}: {passed} of {all_} pass\n")
    sys.stdout.write(f"{time.monotonic() - start:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
