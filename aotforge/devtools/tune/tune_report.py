"""A search and its report: the best settings by estimate, and their place in `manifests/tuning/`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from aotforge.base.files import write_atomic
from aotforge.base.tuning import Found, Timed, load_tuning
from aotforge.devtools.cost.cost_report import NOTE
from aotforge.errors import ReportError, UnsupportedError

_SHOWN = 10
_MARK = "found:"
_DEVICE = "on the GPU"
Values = Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class TunedCost:
    """An estimate of one image on one call: its workgroups' cycles on full units, resources, or why it has
    none (`refused`).

    Or its time on a device: `milliseconds`, and `ratio`, the same as a share of the reference's in the same
    rounds. `may_spill`: a build accepts the image although it uses scratch.
    """

    cycles: float = 0.0
    milliseconds: float = 0.0
    ratio: float = 0.0
    may_spill: bool = False
    registers: int = 0
    occupancy: int = 0
    shared_bytes: int = 0
    scratch_bytes: int = 0
    refused: str = ""

    @property
    def usable(self) -> bool:
        """It fits, and no register is saved to memory, which a build refuses."""
        return not self.refused and (not self.scratch_bytes or self.may_spill)

    @property
    def measure(self) -> float:
        """What settings are compared by: the less, the better; 0 without an estimate."""
        return self.ratio or self.cycles


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One setting (none: the rules' choice) and its estimates by shape."""

    values: Values
    estimates: tuple[TunedCost, ...]

    @property
    def usable(self) -> bool:
        """On every shape."""
        return all(estimate.usable for estimate in self.estimates)


@dataclass(frozen=True, kw_only=True)
class TimedOn:
    """A device, and the versions of its driver's parts; `emulator` plays it, '' for hardware."""

    name: str
    versions: tuple[str, ...]
    emulator: str = ""


@dataclass(frozen=True, kw_only=True)
class Search:
    """`rules`: the present choice, whose values are `present`; `tried` in the order of trial; `offered`
    candidates in all; `known` estimates were read and not made. `timed`: the device that they are times
    of. `written`: the file that holds the best setting now."""

    kernel: str
    arch: str
    functional: Mapping[str, str]
    shapes: tuple[str, ...]
    present: Values
    rules: Tried
    tried: tuple[Tried, ...]
    offered: int
    known: int
    seconds: float
    timed: TimedOn | None = None
    written: Path | None = None

    @property
    def ranked(self) -> list[tuple[float, Tried]]:
        """Usable settings with their estimate as a share of the rules' (geometric mean over the shapes), the
        best first.

        Where the rules' choice has no estimate, as a share of the best one's.
        """
        usable = [(_mean(tried), tried) for tried in (self.rules, *self.tried) if tried.usable]
        usable.sort(key=lambda pair: pair[0])
        base = _mean(self.rules) or (usable[0][0] if usable else 1.0)
        return [(mean / base, tried) for mean, tried in usable]

    def fields(self) -> dict[str, Any]:
        """JSON values."""
        ranked = [{"ratio": ratio, **asdict(tried)} for ratio, tried in self.ranked]
        rest = {"ranked": ranked, "written": str(self.written) if self.written else None}
        return {"note": None if self.timed else NOTE, **asdict(self), **rest}

    def lines(self) -> list[str]:
        """The best settings, then what was tried."""
        refused = [tried for tried in self.tried if not tried.usable]
        spilled = sum(any(estimate.scratch_bytes for estimate in tried.estimates) for tried in refused)
        wrong = sum(any(_DEVICE in estimate.refused for estimate in tried.estimates) for tried in refused)
        base = "the rules' choice" if _mean(self.rules) else "the best setting"
        what = "times" if self.timed else "estimated cycles"
        total = (
            f"{len(self.tried)} of {self.offered} settings tried in {self.seconds:.0f} s, "
            f"{self.known} estimates known before; "
            f"{spilled} spill, {len(refused) - spilled - wrong} do not fit or compile"
        )
        lines = [
            f"{self.kernel} on {self.arch}, {_text(self.functional)}; {what} as a share of {base}, "
            f"over {len(self.shapes)} shapes"
        ]
        if not self.rules.usable:
            lines.append(f"the rules' choice is not usable: {_why_not(self.rules)}")
        lines += [f"{ratio:6.3f}  {_row(tried)}" for ratio, tried in self.ranked[:_SHOWN]]
        if on := self.timed:
            played = f"; {on.emulator} plays it, it is not hardware" if on.emulator else ""
            lines += [f"{total}, {wrong} are not right on the GPU"]
            lines += [f"on {on.name}, {', '.join(on.versions)}{played}"]
        else:
            lines.append(total)
        if len(self.tried) < self.offered:
            lines.append("the same command with a larger --budget continues")
        return [
            *lines,
            *([f"written: {self.written}"] if self.written else []),
            *([] if self.timed else [NOTE]),
        ]


def _mean(tried: Tried) -> float:
    """Geometric mean of its measures; 0 without one."""
    return math.prod(estimate.measure for estimate in tried.estimates) ** (1 / len(tried.estimates))


def _why_not(rules: Tried) -> str:
    scratch = max(estimate.scratch_bytes for estimate in rules.estimates)
    refused = next((estimate.refused for estimate in rules.estimates if estimate.refused), "")
    return refused or f"spills {scratch} bytes of scratch a lane"


def _row(tried: Tried) -> str:
    estimate = tried.estimates[0]
    times = ", ".join(f"{each.milliseconds:.4f}" for each in tried.estimates if each.milliseconds)
    return (
        f"{_text(tried.values) or 'the rules'}  {f'{times} ms, ' if times else ''}"
        f"{estimate.registers} registers, {estimate.occupancy} waves per SIMD, "
        f"{estimate.shared_bytes} bytes of shared memory"
    )


def _text(values: Mapping[str, object]) -> str:
    return ",".join(f"{name}={value}" for name, value in values.items())


def write_found(search: Search, folder: Path, *, date: str, triton: str) -> Path:
    """Puts the best setting into `found` of the arch's file, in the place of an earlier result for the same
    functional.

    Estimates and times are kept beside each other. Rows stay as they are: images change only when a row is
    edited. Raises UnsupportedError without an estimate of the rules' choice, ReportError for times of an
    emulated GPU, RulesError, ManifestError, OutputError.
    """
    if search.timed and search.timed.emulator:
        raise ReportError(
            f"the times are of {search.timed.emulator}, not of hardware",
            hint="leave out --write, or run it on a GPU",
        )
    if not search.ranked or not _mean(search.rules):
        raise UnsupportedError(
            f"nothing to keep for {search.kernel} on {search.arch}",
            cause="the rules' choice has no estimate, or no setting is usable",
            hint="correct the row in manifests/tuning, or raise --budget",
        )
    ratio, best = search.ranked[0]
    path, tuning = load_tuning(folder).of(search.arch, 0)
    on, rules = search.timed, search.rules.estimates
    milliseconds = tuple(round(cost.milliseconds, 5) for cost in rules)
    new = Found(
        arch=search.arch,
        kernel=search.kernel,
        functional=dict(search.functional),
        shapes=search.shapes,
        rules=dict(search.present),
        cycles=() if on else tuple(round(estimate.cycles) for estimate in rules),
        registers=rules[0].registers,
        occupancy=rules[0].occupancy,
        setting=dict(best.values),
        ratio=round(ratio, 4),
        tried=len(search.tried),
        triton=triton,
        date=date,
        timed=Timed(device=on.name, versions=on.versions, milliseconds=milliseconds) if on else None,
    )
    kept = [result for result in tuning.found if _identity(result) != _identity(new)]
    every = sorted([*kept, new], key=_identity)
    head = path.read_text(encoding="utf-8").partition(f"\n{_MARK}")[0].rstrip("\n")
    values = {"found": [result.model_dump(mode="json", exclude_defaults=True) for result in every]}
    text = yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=118)
    write_atomic(path, f"{head}\n{text}".encode())
    return path


def _identity(result: Found) -> tuple[object, ...]:
    """What a file has one result of."""
    return result.arch, result.kernel, sorted(result.functional.items()), result.timed is not None
