"""Verdicts as one HTML file that needs nothing else: no script, no font, no network."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from html import escape

from aotforge.verify.compare import SAME_PRECISION_FACTOR, TILE_SCALE
from aotforge.verify.verdict import OutputStats, Verdict, VerifyReport
from aotforge.virtual_gpu.emulator.classes import InstructionClass

_COLOURS = {
    InstructionClass.MATRIX: "#7b3294",
    InstructionClass.VALU: "#2b83ba",
    InstructionClass.SALU: "#9ecae1",
    InstructionClass.LDS: "#1a9641",
    InstructionClass.MEMORY: "#e08214",
    InstructionClass.SCALAR_MEMORY: "#fdb863",
    InstructionClass.CONTROL: "#969696",
    InstructionClass.OTHER: "#d9d9d9",
}
_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; color: #222; background: #fff }
h1 { font-size: 1.4em } p { max-width: 60em }
table { border-collapse: collapse } th, td { padding: .25em .6em; text-align: left; vertical-align: top; border-bottom: 1px solid #ddd }
th { position: sticky; top: 0; background: #fff } td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
td.label { font-family: ui-monospace, monospace; font-size: .9em; overflow-wrap: anywhere; min-width: 22em }
.passed { color: #1a7a36 } .failed { color: #b2182b; font-weight: bold } .unverified { color: #b35806; font-weight: bold }
.mix { display: flex; width: 14em; height: 1.1em } .mix i { display: block }
.key { display: inline-block; width: 1em; height: 1em; vertical-align: -.15em; margin: 0 .3em 0 1em }
pre { white-space: pre-wrap; background: #f7eaea; padding: .5em }
"""
NOT_MODELLED = (
    "These are results of an emulator. Not modelled: time, caches and instruction prefetch, hazards, the MODE register, traps and "
    "exceptions, hardware-exact transcendental functions, the order of additions and denormal flushing inside matrix instructions. "
    "docs/virtual-gpu.md has the whole list. It does not replace one run on the real chip."
)
_HEADS = (
    "verdict", "image", "cases", "launches", "worst", "outputs", "VGPR", "AGPR", "SGPR", "spills", "LDS", "waves per SIMD",
    "wave-instructions", "mix",
)  # fmt: skip


def report_html(report: VerifyReport) -> str:
    """The report as a whole page, the same text for the same report."""
    counts = Counter(verdict.outcome for verdict in report.verdicts)
    found = ", ".join(f"{counts[o]} {o}" for o in ("passed", "failed", "unverified") if counts[o])
    title = f"Verification of {report.pack}, profile {report.profile}"
    return "".join(
        [
            f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style></head><body>\n',
            f"<h1>{escape(title)}</h1>\n",
            f"<p>{len(report.verdicts)} images for {escape(', '.join(report.archs))}: {found or 'none'}; ",
            f"{sum(v.runs for v in report.verdicts)} launches, {sum(v.instructions for v in report.verdicts):,} wave-instructions.</p>\n",
            f"<p>{_rule()}</p>\n<p>{escape(NOT_MODELLED)}</p>\n",
            f"<p>Instruction mix:{_legend()}</p>\n",
            "<table>\n<tr>" + "".join(f"<th>{head}</th>" for head in _HEADS) + "</tr>\n",
            *(_row(verdict) for verdict in report.verdicts),
            "</table>\n</body></html>\n",
        ]
    )


def _rule() -> str:
    return (
        f"An image passes when, in every case, (1) the largest error of each output against float64 is at most {SAME_PRECISION_FACTOR:g} times the "
        "largest error of the same computation in the same precision plus one unit in the last place of the largest value, (2) each "
        f"element is within its rounding analysis, and (3) no tile is scaled as a whole by more than {TILE_SCALE:.1%}. Figures are shares "
        "of what is allowed: 1 is the limit."
    )


def _row(verdict: Verdict) -> str:
    r = verdict.resources
    spilled = f"{r.vgpr_spills} / {r.sgpr_spills}" + (f", {r.scratch_bytes} B" if r.scratch_bytes else "")
    cells = [
        f'<td class="{verdict.outcome}">{verdict.outcome}</td>',
        f'<td class="label">{escape(verdict.label)}<br><small>{verdict.digest[:16]}</small>{_failure(verdict)}</td>',
        f"<td>{_folded(verdict.cases)}</td>",
        *(_number(n) for n in (verdict.runs, _share(verdict.worst))),
        "<td>" + "<br>".join(_output(one) for one in verdict.outputs) + "</td>",
        *(_number(n) for n in (r.vgpr, r.agpr, r.sgpr, spilled, f"{r.lds_bytes:,} B", r.occupancy)),
        _number(f"{verdict.instructions:,}"),
        f"<td>{_mix(verdict)}</td>",
    ]
    return "<tr>" + "".join(cells) + "</tr>\n"


def _number(value: object) -> str:
    return f'<td class="n">{value}</td>'


def _share(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "∞"


def _output(one: OutputStats) -> str:
    figures = f"{_share(one.tensor)} error, {_share(one.element)} element, {_share(one.tile)} tile"
    return f'<span title="error {one.error:.3g}, allowed {one.allowed:.3g}, {escape(one.at)}">{escape(one.name)}: {figures}</span>'


def _failure(verdict: Verdict) -> str:
    said = verdict.failure or ("" if verdict.outcome != "unverified" else "no case leads to this image")
    return f"<pre>{escape(said)}</pre>" if said else ""


def _folded(names: Iterable[str]) -> str:
    shown = list(names)
    return f"<details><summary>{len(shown)}</summary>{'<br>'.join(map(escape, shown))}</details>"


def _mix(verdict: Verdict) -> str:
    total = sum(count for _, count in verdict.mix)
    if not total:
        return ""
    bars = []
    for kind, count in verdict.mix:
        one = InstructionClass(kind)
        if count:
            said = f"{one.label}: {count:,} ({count / total:.1%})"
            bars.append(
                f'<i style="width:{100 * count / total:.2f}%;background:{_COLOURS[one]}" title="{said}"></i>'
            )
    matrix = dict(verdict.mix).get(InstructionClass.MATRIX, 0) / total
    return f'<div class="mix">{"".join(bars)}</div><small>{matrix:.1%} matrix</small>'


def _legend() -> str:
    return "".join(
        f'<span class="key" style="background:{_COLOURS[kind]}"></span>{kind.label}'
        for kind in InstructionClass
    )
