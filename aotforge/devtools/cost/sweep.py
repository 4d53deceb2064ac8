"""Sweep of a kernel: every combination of values on several shapes, next to the rules' choice."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

from aotforge.devtools.cost.candidates import (
    Candidate,
    CostRequest,
    compile_together,
    compiled,
    find_candidates,
)
from aotforge.devtools.cost.cost_report import NOTE
from aotforge.devtools.cost.rates import model_of
from aotforge.devtools.cost.run_cost import Cost, dispatched, measured
from aotforge.errors import AotforgeError, CompileError, ExecutionError, ResourceError, UnsupportedError

LIMIT = 256
"""Most combinations of a sweep: each is compiled, and executed once per shape."""
_RULES, _COLUMN = "the rules", 20


@dataclass(frozen=True, kw_only=True)
class Row:
    """One setting: its cost on each shape, or why it has none."""

    setting: Mapping[str, str]
    costs: tuple[Cost, ...] = ()
    refused: str = ""

    @property
    def name(self) -> str:
        """The swept values, as `--setting` takes them."""
        return ",".join(f"{name}={value}" for name, value in self.setting.items()) or _RULES

    @property
    def spills(self) -> bool:
        """Registers are saved to memory; a build refuses such an image."""
        return any(one.resources.scratch_bytes for one in self.costs)


@dataclass(frozen=True, kw_only=True)
class SweepReport:
    """`rows`: the rules' choice for each shape, then the settings. `shapes` are texts."""

    rows: tuple[Row, ...]
    shapes: tuple[str, ...]

    def best(self, shape: int) -> Row:
        """The row with the fewest estimated cycles on that shape, of those that do not spill."""
        measured_rows = [row for row in self.rows if row.costs]
        return min(measured_rows, key=lambda row: (row.spills, row.costs[shape].estimate.launch))

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        rows = []
        for row in self.rows:
            costs = [
                {
                    "image": one.digest,
                    "name": one.name,
                    "grid": one.grid,
                    "instructions": one.work.instructions,
                }
                | {"resources": asdict(one.resources), "estimate": asdict(one.estimate)}
                for one in row.costs
            ]
            rows.append({"setting": dict(row.setting), "costs": costs, "refused": row.refused})
        best = [self.best(number).name for number in range(len(self.shapes))]
        return {"note": NOTE, "shapes": list(self.shapes), "settings": rows, "best": best}

    def lines(self) -> list[str]:
        """Shapes by number, a row per setting with ratios to the rules' choice, then the best setting of each shape."""
        rules = self.rows[0]
        numbers = [f"[{number}]" for number in range(1, len(self.shapes) + 1)]
        pairs = zip(numbers, self.shapes, rules.costs, strict=True)
        head = [f"{number} {shape}: {one.name}" for number, shape, one in pairs]
        first, width = rules.costs[0], max(len(row.name) for row in self.rows)
        title = (
            f"estimated cycles of the launch on {first.arch} ({first.product}), and their ratio to {_RULES}"
        )
        columns = " " * width + "".join(f"{number:>{_COLUMN}}" for number in numbers)
        body = [self._line(row, width) for row in self.rows]
        found = [f"fewest on {number}: {self.best(at).name}" for at, number in enumerate(numbers)]
        return [*head, "", title, columns, *body, "", *found, "", NOTE]

    def _line(self, row: Row, width: int) -> str:
        if row.refused:
            return f"{row.name:{width}}  {row.refused}"
        cells = ""
        for one, base in zip(row.costs, self.rows[0].costs, strict=True):
            ratio = one.estimate.launch / base.estimate.launch
            cells += f"{one.estimate.launch:,.0f} ({ratio:.2f}x)".rjust(_COLUMN)
        used = row.costs[-1].resources
        spilled = f", {used.scratch_bytes} bytes spilled" if row.spills else ""
        return f"{row.name:{width}}{cells}  {used.registers} VGPRs, {used.occupancy} waves per SIMD{spilled}"


def swept_values(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """`BLOCK_M=16,32` and more of them as a table. Raises UnsupportedError."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        if name in found or not name or not all(value.isdigit() for value in values.split(",")):
            raise UnsupportedError(
                f"{text!r} is not a sweep of one more name over integers",
                hint="--sweep BLOCK_M=16,32,64 --sweep num_warps=2,4",
            )
        found[name] = tuple(dict.fromkeys(values.split(",")))
    return found


def sweep(
    request: CostRequest, values: Mapping[str, Sequence[str]], shapes: Sequence[Mapping[str, str]]
) -> SweepReport:
    """Compile and execute every combination of `values` on every shape (none: the request's). A combination that does not compile,
    or needs more than the arch has, is a row with its reason.

    Raises UnsupportedError for an image instead of a kernel and for over 256 combinations, else what `cost` raises.
    """
    model_of(request.arch)
    if len(request.images) != 1 or request.settings:
        raise UnsupportedError("a sweep is of one kernel", hint="without --compare and --setting")
    count = math.prod(len(offered) for offered in values.values())
    if count > LIMIT:
        raise UnsupportedError(
            f"the sweep has {count} combinations, the most are {LIMIT}", hint="sweep fewer values at once"
        )
    settings = [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]
    calls = [replace(request, shape=shape) for shape in shapes or [request.shape]]
    found = find_candidates(replace(request, settings=({}, *settings)))
    rules = [dispatched(call, found[0]) for call in calls]
    compile_together([*rules, *found[1:]], request)
    costs = tuple(_measured(call, one) for call, one in zip(calls, rules, strict=True))
    rows = [Row(setting={}, costs=costs)]
    rows += [_row(calls, one, setting) for one, setting in zip(found[1:], settings, strict=True)]
    names = tuple(one.case for one in costs)
    return SweepReport(rows=tuple(rows), shapes=names)


def _row(calls: Sequence[CostRequest], one: Candidate, setting: Mapping[str, str]) -> Row:
    try:
        return Row(setting=setting, costs=tuple(_measured(call, one) for call in calls))
    except (CompileError, ResourceError, ExecutionError) as error:
        return Row(setting=setting, refused=_reason(error, one.job.label))


def _measured(call: CostRequest, one: Candidate) -> Cost:
    (image,) = compiled([one], call)
    return measured(call, one, image)


def _reason(error: AotforgeError, label: str) -> str:
    """In one line: of an error about several jobs, the line of this one."""
    lines = [line.strip(" -") for line in error.what.splitlines()]
    own = (line.removeprefix(f"{label}: ") for line in lines if line.startswith(label))
    return next(own, lines[0])
