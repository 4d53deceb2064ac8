"""Costs as text, side by side when there are several, and as fields for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from aotforge.devtools.cost.run_cost import Cost
from aotforge.devtools.cost.work import KINDS, Traffic
from aotforge.virtual_gpu.emulator.measure import SEGMENT

NOTE = "an estimate from a model of issue, pipes and latencies, not a measurement: see docs/virtual-gpu-tools.md for what it ignores"
_Quantity = tuple[str, Sequence[float], str]
"""Name, a value per image, unit."""


def fields(costs: Sequence[Cost]) -> dict[str, Any]:
    """For JSON."""
    entries = []
    for one in costs:
        work = asdict(one.work) | {
            "instructions": one.work.instructions,
            "classes": {kind.value: count for kind, count in one.work.classes.items()},
            "matrix_share": one.work.matrix_share,
        }
        entries.append(asdict(one) | {"work": work})
    return {"note": NOTE, "costs": entries}


def lines(costs: Sequence[Cost]) -> list[str]:
    """For people: what was run, then a row per quantity and a column per image, with ratios to the first."""
    first = costs[0]
    head = []
    for number, one in enumerate(costs, 1):
        r = one.resources
        head.append(f"{f'[{number}] ' if len(costs) > 1 else ''}{one.name}  {one.digest[:12]}")
        head.append(
            f"    {one.case}; grid {'x'.join(map(str, one.grid))}, {one.work.waves} waves of {one.work.wavefront} lanes; "
            f"{r.vgpr} VGPRs, {r.agpr} AGPRs, {r.lds_bytes} bytes of LDS, {r.scratch_bytes} of scratch; "
            f"{r.occupancy} waves per SIMD, {one.estimate.resident:g} workgroups on a unit"
        )
    rows = _rows(costs)
    width = max(len(name) for name, _, _ in rows)
    body = [_row(name, values, unit, width) for name, values, unit in rows if any(values)]
    bound = f"{'decided by':{width}}  " + "  ".join(f"{one.estimate.bound:>12}" for one in costs)
    hot = [
        line
        for number, one in enumerate(costs, 1)
        if one.hot
        for line in ("", *_hot(one, number, len(costs)))
    ]
    return [*head, f"on {first.arch} ({first.chip})", "", *body, bound, *hot, "", NOTE]


def _hot(one: Cost, number: int, images: int) -> list[str]:
    """The busiest instructions of one image."""
    lines = [
        f"busiest instructions{f' of [{number}]' if images > 1 else ''}, cycles of their pipe in the launch"
    ]
    for hot in one.hot:
        notes = [f"{hot.conflicts:.3g} bank cycles for 1" if hot.conflicts > 1 else ""]
        notes.append(f"{hot.used:.0%} of segments used" if 0 < hot.used < 0.99 else "")
        said = "; ".join(note for note in notes if note)
        lines.append(
            f"  {hot.cycles:12,.0f} {hot.pipe:12} {hot.address:#07x} {hot.line:6}  {hot.text}  x {hot.count}"
            + (f"  ({said})" if said else "")
        )
    return lines


def _rows(costs: Sequence[Cost]) -> list[_Quantity]:
    """Every quantity with its value for each image; per workgroup unless it says otherwise."""
    share = [1 / c.work.workgroups for c in costs]

    def per(values: Iterable[float]) -> list[float]:
        return [value * part for value, part in zip(values, share, strict=True)]

    rows: list[_Quantity] = [("instructions", per(c.work.instructions for c in costs), "")]
    for kind in costs[0].work.classes:
        rows.append((f"  {kind.label}", per(c.work.classes[kind] for c in costs), ""))
    rows += [
        ("matrix share of instructions", [100 * c.work.matrix_share for c in costs], "%"),
        ("lanes on in VALU", [_lanes_on(c) for c in costs], "%"),
        ("matrix FLOPs", per(c.work.flops for c in costs), ""),
    ]
    for name in KINDS:
        found = [c.work.traffic[name] for c in costs]
        rows.append((f"{name}, bytes", per(t.bytes for t in found), ""))
        if name.startswith("global"):
            rows.append(("  share of touched 64-byte segments", [_coalesced(t) for t in found], "%"))
        if name.startswith("LDS"):
            rows.append(("  bank cycles, 1: no conflict", [_conflicts(t) for t in found], ""))
    rows.append(
        ("global memory touched by the launch, bytes", [c.work.loaded + c.work.stored for c in costs], "")
    )
    for pipe in costs[0].estimate.pipes:
        rows.append((f"cycles of pipe: {pipe}", [c.estimate.pipes.get(pipe, 0.0) for c in costs], ""))
    return [
        *rows,
        ("cycles of one wave by itself", [c.estimate.wave for c in costs], ""),
        ("estimated cycles, one workgroup alone", [c.estimate.alone for c in costs], ""),
        ("estimated cycles a workgroup, unit full", [c.estimate.workgroup for c in costs], ""),
        ("estimated cycles, whole launch on the chip", [c.estimate.launch for c in costs], ""),
        ("share of the matrix peak, unit full", [100 * c.estimate.utilization for c in costs], "%"),
    ]


def _row(name: str, values: Sequence[float], unit: str, width: int) -> str:
    cells = [f"{_text(value)}{unit}".rjust(12) for value in values]
    ratios = [f"({value / values[0]:.2f}x)" if values[0] else "" for value in values[1:]]
    shown = [cells[0], *(f"{cell} {ratio:>9}" for cell, ratio in zip(cells[1:], ratios, strict=True))]
    return f"{name:{width}}  {'  '.join(shown)}".rstrip()


def _text(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"


def _lanes_on(one: Cost) -> float:
    from_vectors = sum(count for kind, count in one.work.classes.items() if kind.value == "valu")
    return 100 * one.work.vector_lanes / (from_vectors * one.work.wavefront) if from_vectors else 0.0


def _coalesced(traffic: Traffic) -> float:
    return 100 * traffic.bytes / (SEGMENT * traffic.segments) if traffic.segments else 0.0


def _conflicts(traffic: Traffic) -> float:
    return traffic.cycles / traffic.phases if traffic.phases else 0.0
