"""Report of costs: as text, in columns when there are several, and as fields for JSON."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aotforge.devtools.cost.run_cost import Cost, ProgramCost
from aotforge.devtools.cost.work import KINDS
from vgpu.emulator.classes import InstructionClass

NOTE = "an estimate from a model, not a measurement: see docs/virtual-gpu-tools.md for its limits"
_Quantity = tuple[str, Callable[[Cost], float], str]
"""Name, value of a cost, unit."""


@dataclass(frozen=True)
class CostReport:
    """Costs of images; the first is what the others are compared with."""

    costs: Sequence[Cost]

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        entries = []
        for cost in self.costs:
            work = asdict(cost.work) | {
                "instructions": cost.work.instructions,
                "classes": {kind.value: count for kind, count in cost.work.classes.items()},
                "matrix_share": cost.work.matrix_share,
            }
            entries.append(asdict(cost) | {"work": work})
        return {"note": NOTE, "costs": entries}

    def lines(self) -> list[str]:
        """The launches, then a row per quantity and a column per image, with ratios to the first."""
        first, several = self.costs[0], len(self.costs) > 1
        head, hot = [], []
        for number, cost in enumerate(self.costs, 1):
            head += _launch_lines(cost, f"[{number}] " if several else "")
            hot += _hot_lines(cost, f" of [{number}]" if several else "") if cost.hot else []
        rows = [
            (name, [value(cost) for cost in self.costs], unit) for name, value, unit in _quantities(first)
        ]
        width = max(len(name) for name, _, _ in rows)
        body = [_row(name, values, unit, width) for name, values, unit in rows if any(values)]
        bound = f"{'decided by':{width}}  " + "  ".join(f"{cost.estimate.bound:>12}" for cost in self.costs)
        return [*head, f"on {first.arch} ({first.product})", "", *body, bound, *hot, "", NOTE]


def _launch_lines(cost: Cost, prefix: str) -> list[str]:
    r = cost.resources
    return [
        f"{prefix}{cost.name}  {cost.digest[:12]}",
        f"    {cost.case}; grid {'x'.join(map(str, cost.grid))}, "
        f"{cost.work.waves} waves of {cost.work.wavefront} lanes; "
        f"{r.registers} VGPRs, {r.accumulation_registers} AGPRs, {r.shared_bytes} bytes of LDS, "
        f"{r.scratch_bytes} of scratch; "
        f"{r.occupancy} waves per SIMD, {cost.estimate.resident:g} workgroups on a unit",
    ]


def _hot_lines(cost: Cost, which: str) -> list[str]:
    lines = ["", f"busiest instructions{which}, cycles of their pipe in the launch"]
    for hot in cost.hot:
        notes = [f"{hot.conflicts:.3g} bank cycles for 1"] if hot.conflicts > 1 else []
        notes += [f"{hot.used:.0%} of segments used"] if 0 < hot.used < 0.99 else []
        lines.append(
            f"  {hot.cycles:12,.0f} {hot.pipe:12} {hot.address:#07x} {hot.line:6}  {hot.text}  x {hot.count}"
            + (f"  ({'; '.join(notes)})" if notes else "")
        )
    return lines


def _quantities(first: Cost) -> list[_Quantity]:
    """All rows; per workgroup unless the name states otherwise."""

    def per(value: Callable[[Cost], float]) -> Callable[[Cost], float]:
        return lambda c: value(c) / c.work.workgroups

    rows: list[_Quantity] = [("instructions", per(lambda c: c.work.instructions), "")]
    rows += [(f"  {kind.label}", per(lambda c, k=kind: c.work.classes[k]), "") for kind in InstructionClass]  # type: ignore[misc]
    rows += [
        ("matrix share of instructions", lambda c: 100 * c.work.matrix_share, "%"),
        ("lanes on in VALU", lambda c: 100 * c.work.lanes_on, "%"),
        ("matrix FLOPs", per(lambda c: c.work.flops), ""),
    ]
    for name in KINDS:
        rows.append((f"{name}, bytes", per(lambda c, n=name: c.work.traffic[n].bytes), ""))  # type: ignore[misc]
        if name.startswith("global"):
            share = "  share of touched 64-byte segments"
            rows.append((share, lambda c, n=name: 100 * c.work.traffic[n].used, "%"))  # type: ignore[misc]
        if name.startswith("LDS"):
            rows.append(("  bank cycles, 1: no conflict", lambda c, n=name: c.work.traffic[n].conflicts, ""))  # type: ignore[misc]
    rows.append(("global memory touched by the launch, bytes", lambda c: c.work.loaded + c.work.stored, ""))
    for pipe in first.estimate.pipes:
        rows.append((f"cycles of pipe: {pipe}", lambda c, p=pipe: c.estimate.pipes.get(p, 0.0), ""))  # type: ignore[misc]
    return [
        *rows,
        ("cycles of one wave by itself", lambda c: c.estimate.wave, ""),
        ("estimated cycles, one workgroup alone", lambda c: c.estimate.alone, ""),
        ("estimated cycles a workgroup, unit full", lambda c: c.estimate.workgroup, ""),
        ("estimated cycles, launch on all units", lambda c: c.estimate.launch, ""),
        ("share of the matrix peak, unit full", lambda c: 100 * c.estimate.utilization, "%"),
    ]


class LaunchCost(ProgramCost):
    """The cost of the launch that `vgpu run` makes."""

    def lines(self, grid: tuple[int, int, int], lds_bytes: int) -> list[str]:
        """The report, after the launch."""
        return ["", *CostReport([self.cost(self.kernel, "as launched", grid, lds_bytes)]).lines()]


def _row(name: str, values: Sequence[float], unit: str, width: int) -> str:
    cells = [f"{_text(value)}{unit}".rjust(12) for value in values]
    ratios = [f"({value / values[0]:.2f}x)" if values[0] else "" for value in values[1:]]
    shown = [cells[0], *(f"{cell} {ratio:>9}" for cell, ratio in zip(cells[1:], ratios, strict=True))]
    return f"{name:{width}}  {'  '.join(shown)}".rstrip()


def _text(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"
