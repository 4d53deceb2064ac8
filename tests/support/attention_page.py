"""docs/attention.md: the calls of attention that the archs serve, generated from the plan.

`python -m tests.support.attention_page` writes it again after a change of rules or settings; a test
compares.
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from aotforge.base.architectures import load_architectures
from aotforge.base.files import write_atomic
from aotforge.base.general_costs import GeneralCosts, load_general_costs
from aotforge.base.html import render
from aotforge.plan.checkout import Checkout
from aotforge.plan.gates import missing_calls
from aotforge.plan.model import Plan, PlannedKernel
from aotforge.plan.planner import plan_project
from aotforge.rules import GENERAL_SUFFIX
from kernels.flash.gates import GATES

PAGE = Path("docs", "attention.md")
"""Below the checkout."""

_DTYPES = {1: "fp32", 2: "fp16", 3: "bf16"}
_MASKS = {0: "full", 1: "window", 2: "bias"}


def page_archs() -> tuple[str, ...]:
    """The first arch of each product line; the others of a line serve the same calls."""
    rows = load_architectures().amd
    lines = [row.product_line for row in rows.values()]
    return tuple(arch for number, arch in enumerate(rows) if lines[number] not in lines[:number])


def attention_page(root: Path) -> str:
    """The page's text for a checkout. Raises what planning raises."""
    full = {arch: plan_project(Checkout(root), archs=[arch], profile="full") for arch in page_archs()}
    default = {arch: plan_project(Checkout(root), archs=[arch]) for arch in page_archs()}
    kernels, served = (
        {arch: [k for k in plan.kernels if k.family == "flash"] for arch, plan in plans.items()}
        for plans in (full, default)
    )
    text = render(
        "attention.md.jinja",
        images=_table(_images(default, full)),
        costs=_table(_costs(load_general_costs(root / "manifests"))),
        widths=_table(_widths(kernels)),
        gates=_table(_gates(served)),
    )
    return f"{text}\n"


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join((head, "|" + "---|" * len(rows[0]), *body))


def _widths(kernels: Mapping[str, Sequence[PlannedKernel]]) -> list[list[str]]:
    """A row per kernel and set of widths; what every arch has is written once."""
    by_call: dict[tuple[str, str], dict[str, list[int]]] = {}
    for arch, planned in kernels.items():
        for kernel in planned:
            for functional in kernel.functionals:
                call = dict(zip(kernel.keys, functional.key, strict=True))
                width = call.pop("width", 0)
                row = by_call.setdefault((kernel.name, _call_text(call)), {})
                row.setdefault(arch, []).append(width)
    groups: dict[tuple[str, str, str], list[str]] = {}
    for (name, text), by_arch in sorted(by_call.items()):
        largest = max(by_arch.values(), key=len)
        less = "; ".join(
            f"{arch}: {' '.join(str(w) for w in largest if w not in by_arch.get(arch, []))}"
            for arch in kernels
            if by_arch.get(arch) != largest
        )
        widths = " ".join(map(str, largest)) if any(largest) else "any"
        groups.setdefault((name, widths, less), []).append(text)
    sets = Counter(name for name, _, _ in groups)
    rows = [["kernel", "calls", "widths", "except"]]
    for (name, widths, less), calls in groups.items():
        rows.append([name, ", ".join(calls) if sets[name] > 1 else "all", widths, less or "-"])
    return rows


def _call_text(call: Mapping[str, int]) -> str:
    words = []
    for key, number in call.items():
        names = {"dtype": _DTYPES, "mask": _MASKS, "dropout": {0: "", 1: "dropout"}}.get(key, {})
        words.append(names.get(number, f"{key} {number}"))
    return " ".join(word for word in words if word)


def _images(default: Mapping[str, Plan], full: Mapping[str, Plan]) -> list[list[str]]:
    rows = [["arch", "default: special", "general", "`--profile full`"]]
    for arch, plan in default.items():
        jobs = [job for job in plan.jobs if job.family == "flash"]
        general = sum(job.function.endswith(GENERAL_SUFFIX) for job in jobs)
        complete = sum(job.family == "flash" for job in full[arch].jobs)
        rows.append([arch, str(len(jobs) - general), str(general), str(complete)])
    return rows


def _costs(costs: GeneralCosts) -> list[list[str]]:
    """A row per call, a column per arch with estimates."""
    archs = [arch for arch in page_archs() if costs.of(arch)]
    multiples: dict[str, dict[str, float]] = {}
    for row in costs.costs:
        multiples.setdefault(row.call(), {})[row.arch] = row.multiple
    rows = [["call", *archs]]
    for call, by_arch in multiples.items():
        rows.append([call, *(f"{by_arch[arch]:.1f}" if arch in by_arch else "-" for arch in archs)])
    return rows


def _gates(kernels: Mapping[str, Sequence[PlannedKernel]]) -> list[list[str]]:
    """Yes, or the first kind of calls that is missing."""
    rows = [["API level", "arch", "served"]]
    for gate in GATES:
        texts: dict[str, list[str]] = {}
        for arch, planned in kernels.items():
            missing = next(missing_calls(gate, planned, arch), "")
            text = f"no: {missing}"[:60] if missing else "yes"
            texts.setdefault(text, []).append(arch)
        rows += [[gate.name, " ".join(archs), text] for text, archs in texts.items()]
    return rows


if __name__ == "__main__":
    _root = Path(__file__).resolve().parents[2]
    write_atomic(_root / PAGE, attention_page(_root).encode())
    sys.stdout.write(f"{PAGE}\n")
