"""Report of a search: the best settings by estimate, and their place in `manifests/tuning/`."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from aotforge.base.files import write_atomic
from aotforge.base.tuning import Found, load_tuning
from aotforge.devtools.cost.cost_report import NOTE
from aotforge.devtools.tune.search import Search, Tried
from aotforge.errors import UnsupportedError

_SHOWN = 10
_MARK = "found:"


@dataclass(frozen=True, kw_only=True)
class TuneReport:
    """A search, ranked. `written`: the file that holds the best settings now."""

    search: Search
    written: Path | None = None

    @property
    def ranked(self) -> list[tuple[float, Tried]]:
        """Usable settings with their estimate as a share of the rules' (geometric mean over the shapes), the best first.

        Where the rules' choice has no estimate, as a share of the best one's.
        """
        usable = [(_mean(one), one) for one in (self.search.rules, *self.search.tried) if one.usable]
        usable.sort(key=lambda pair: pair[0])
        base = _mean(self.search.rules) or (usable[0][0] if usable else 1.0)
        return [(mean / base, one) for mean, one in usable]

    def fields(self) -> dict[str, Any]:
        """JSON values."""
        ranked = [{"ratio": ratio, **asdict(one)} for ratio, one in self.ranked]
        written = str(self.written) if self.written else None
        return {"note": NOTE, **asdict(self.search), "ranked": ranked, "written": written}

    def lines(self) -> list[str]:
        """The best settings, then what was tried."""
        search, refused = self.search, [one for one in self.search.tried if not one.usable]
        spilled = sum(any(estimate.scratch_bytes for estimate in one.estimates) for one in refused)
        functional = ",".join(f"{name}={value}" for name, value in search.functional.items())
        base = "the rules' choice" if _mean(search.rules) else "the best setting"
        head = f"{search.kernel} on {search.arch}, {functional}; estimated cycles as a share of {base}, over {len(search.shapes)} shapes"
        rows = [f"{ratio:6.3f}  {_text(one)}" for ratio, one in self.ranked[:_SHOWN]]
        total = (
            f"{len(search.tried)} of {search.offered} settings tried in {search.seconds:.0f} s, {search.known} estimates known before; "
            f"{spilled} spill, {len(refused) - spilled} do not fit or compile"
        )
        rest = (
            ["the same command with a larger --budget continues"]
            if len(search.tried) < search.offered
            else []
        )
        return [
            head,
            *_why_not(search.rules),
            *rows,
            total,
            *rest,
            *([f"written: {self.written}"] if self.written else []),
            NOTE,
        ]


def _mean(one: Tried) -> float:
    """Geometric mean of its estimates; 0 without one."""
    return math.prod(estimate.cycles for estimate in one.estimates) ** (1 / len(one.estimates))


def _why_not(rules: Tried) -> list[str]:
    """Why the rules' choice is not among the usable settings."""
    scratch = max(estimate.scratch_bytes for estimate in rules.estimates)
    refused = next((estimate.refused for estimate in rules.estimates if estimate.refused), "")
    reason = refused or (f"spills {scratch} bytes of scratch a lane" if scratch else "")
    return [f"the rules' choice is not usable: {reason}"] if reason else []


def _text(one: Tried) -> str:
    estimate = one.estimates[0]
    name = ",".join(f"{name}={value}" for name, value in one.values.items()) or "the rules"
    return f"{name}  {estimate.registers} registers, {estimate.occupancy} waves per SIMD, {estimate.shared_bytes} bytes of shared memory"


def write_found(report: TuneReport, folder: Path, *, date: str, triton: str) -> Path:
    """Puts the best setting into `found` of the arch's file, in the place of an earlier result for the same functional.

    Rows stay as they are: images change only when a row is edited. Raises UnsupportedError without an estimate of
    the rules' choice, RulesError, ManifestError, OutputError.
    """
    search = report.search
    if not report.ranked or not _mean(search.rules):
        raise UnsupportedError(
            f"nothing to keep for {search.kernel} on {search.arch}",
            cause="the rules' choice has no estimate, or no setting is usable",
            hint="correct the row in manifests/tuning, or raise --budget",
        )
    ratio, best = report.ranked[0]
    path, tuning = load_tuning(folder).of(search.arch, 0)
    new = Found(
        arch=search.arch,
        kernel=search.kernel,
        functional=dict(search.functional),
        shapes=search.shapes,
        rules=dict(search.present),
        cycles=tuple(round(estimate.cycles) for estimate in search.rules.estimates),
        registers=search.rules.estimates[0].registers,
        occupancy=search.rules.estimates[0].occupancy,
        setting=dict(best.values),
        ratio=round(ratio, 4),
        tried=len(search.tried),
        triton=triton,
        date=date,
    )
    kept = [
        one
        for one in tuning.found
        if (one.arch, one.kernel, dict(one.functional)) != (new.arch, new.kernel, dict(new.functional))
    ]
    every = sorted([*kept, new], key=lambda one: (one.arch, one.kernel, sorted(one.functional.items())))
    head = path.read_text(encoding="utf-8").partition(f"\n{_MARK}")[0].rstrip("\n")
    values = {"found": [one.model_dump(mode="json") for one in every]}
    text = yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=118)
    write_atomic(path, f"{head}\n{text}".encode())
    return path
