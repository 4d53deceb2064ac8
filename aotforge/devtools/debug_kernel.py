"""`invoke debug`: a kernel's Python source on a case of its family's, run by Triton's interpreter, compared with the reference.

The case is one on which `invoke verify` tries the kernel's images (kernels/<family>/cases.py).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aotforge.base.architectures import load_architectures
from aotforge.errors import RulesError, UnknownNameError, UnsupportedError, VerifyError, suggest
from aotforge.plan.families import LoadedFamily
from aotforge.rules import Functional, Kernel, Scalar
from aotforge.verify.compare import TILE_SCALE
from aotforge.verify.invocation import Case, Invocation, load_cases
from aotforge.verify.selection import choose, find_case, find_kernel, key_numbers
from aotforge.virtual_gpu.interpreter.breakpoints import parse_location, run_with_debugger
from aotforge.virtual_gpu.interpreter.dispatch import SourceLaunch, select
from aotforge.virtual_gpu.interpreter.memory import Memory
from aotforge.virtual_gpu.interpreter.run_operator import run_launch


@dataclass(frozen=True, kw_only=True)
class DebugRequest:
    """`keys` and `constants` as the user wrote them, name to text; `breaks` as FILE.py:LINE; `program` limits stops."""

    root: Path
    kernel: str
    arch: str = "gfx908"
    case: str | None = None
    keys: Mapping[str, str]
    constants: Mapping[str, str]
    breaks: tuple[str, ...] = ()
    program: tuple[int, int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class OutputReport:
    """`worst` is the largest error in multiples of its bound, at most 1 when right; `worst_at` its element; `error` the largest
    absolute error; `tile_scale` by how much a tile is scaled as a whole; `wrong` elements of `elements`.
    """

    name: str
    shape: tuple[int, ...]
    worst: float
    worst_at: tuple[int, ...]
    error: float
    tile_scale: float
    wrong: int
    elements: int
    intact: bool

    @property
    def passed(self) -> bool:
        """Within its bounds, no tile scaled, nothing written beside it."""
        return self.worst <= 1 and self.tile_scale <= TILE_SCALE and self.intact


@dataclass(frozen=True, kw_only=True)
class DebugReport:
    """`left`: the user quit, so outputs are not compared. `changed_inputs` must be empty in a right kernel."""

    kernel: str
    case: str
    functional: Mapping[str, Scalar]
    constants: Mapping[str, Scalar]
    grid: tuple[int, int, int]
    outputs: tuple[OutputReport, ...]
    changed_inputs: tuple[str, ...]
    seconds: float
    left: bool = False


def debug(request: DebugRequest) -> DebugReport:
    """Run and compare. Raises UnknownNameError, UnsupportedError, RulesError, AccessError, and whatever the kernel's source raises."""
    loaded, kernel = find_kernel(request.root, request.kernel)
    architecture = load_architectures(request.root / "manifests").find(request.arch)
    functional = choose(kernel, request.keys)
    case = find_case(_cases(request.root, loaded, kernel, functional), request.case)
    folder = request.root / "kernels" / loaded.folder
    places = [parse_location(text, folder) for text in request.breaks]
    invocation = case.make()
    override = _constants(request.constants)
    launch = select(kernel, architecture.target(request.arch), invocation.values, override=override)
    if unknown := sorted(set(override) - set(launch.setting.constants)):
        raise UnknownNameError(
            f"{kernel.name} has no constant {unknown[0]}", hint=suggest(unknown[0], launch.setting.constants)
        )
    tensors = {**invocation.inputs, **invocation.outputs}
    memory = Memory({name: tensor.storage for name, tensor in tensors.items()})
    began = time.perf_counter()
    finished = 0 in launch.grid or run_with_debugger(
        lambda: run_launch(launch, folder, memory), places, request.program
    )
    seconds = time.perf_counter() - began
    return _report(kernel, case, launch, invocation, seconds, finished=finished)


def list_cases(root: Path, kernel_name: str, keys: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the cases of a kernel. Raises what `debug` raises before anything runs."""
    loaded, kernel = find_kernel(root, kernel_name)
    return tuple(case.name for case in _cases(root, loaded, kernel, choose(kernel, keys)))


def _cases(root: Path, loaded: LoadedFamily, kernel: Kernel, functional: Functional) -> Sequence[Case]:
    function = load_cases(root / "kernels", loaded.folder)
    if function is None:
        raise RulesError(
            f"family {loaded.family.name} has no cases",
            cause=f"kernels/{loaded.folder}/cases.py is not there",
            hint="see aotforge/verify/invocation.py",
        )
    return function(kernel.name, key_numbers(kernel, functional))


def _constants(texts: Mapping[str, str]) -> dict[str, Scalar]:
    try:
        return {name: int(text) for name, text in texts.items()}
    except ValueError as error:
        raise UnsupportedError(f"a constant is no whole number: {error}") from error


def _report(
    kernel: Kernel,
    case: Case,
    launch: SourceLaunch,
    invocation: Invocation,
    seconds: float,
    *,
    finished: bool,
) -> DebugReport:
    outputs = []
    expected = invocation.expected() if finished else {}
    for name, known in expected.items():
        tensor = invocation.outputs[name]
        found = known.compare(tensor.values())
        misses = found.elements
        at = np.unravel_index(int(misses.argmax()), misses.shape) if misses.size else ()
        outputs.append(
            OutputReport(
                name=name,
                shape=tuple(tensor.shape),
                worst=max(found.element, found.tensor),
                worst_at=tuple(int(i) for i in at),
                error=found.error,
                tile_scale=found.tile * TILE_SCALE,
                wrong=int((misses > 1).sum()),
                elements=int(misses.size),
                intact=tensor.intact(),
            )
        )
    return DebugReport(
        kernel=kernel.name,
        case=case.name,
        functional=dict(launch.functional),
        constants=dict(launch.constants),
        grid=launch.grid,
        outputs=tuple(outputs),
        changed_inputs=tuple(name for name, tensor in invocation.inputs.items() if not tensor.unchanged()),
        seconds=seconds,
        left=not finished,
    )


def report_fields(report: DebugReport) -> dict[str, Any]:
    """For JSON."""
    return asdict(report)


def report_lines(report: DebugReport) -> list[str]:
    """For people."""
    functional = ", ".join(f"{name} {value}" for name, value in report.functional.items())
    constants = ", ".join(f"{name} {value}" for name, value in report.constants.items())
    grid = "x".join(map(str, report.grid))
    lines = [
        f"{report.kernel} on {report.case!r}: {functional}",
        f"grid {grid}, {constants}; {report.seconds:.2f} s in the interpreter",
    ]
    if report.left:
        return [*lines, "left in the debugger: outputs are not compared"]
    for one in report.outputs:
        verdict = "right" if one.passed else "WRONG"
        lines.append(
            f"{one.name:6} {verdict}  worst {one.worst:.3g} times its bound at {one.worst_at}, largest error {one.error:.3g}, "
            f"tiles scaled by {one.tile_scale:.2%} at most, {one.wrong} of {one.elements} elements wrong"
            + ("" if one.intact else "; elements beside it were written")
        )
    lines += [f"{name} was written to, and it is an input" for name in report.changed_inputs]
    return lines


def require_passed(report: DebugReport) -> None:
    """Raises VerifyError when an output is wrong or an input was written to."""
    wrong = [one.name for one in report.outputs if not one.passed] + list(report.changed_inputs)
    if wrong:
        raise VerifyError(
            f"{report.kernel}'s source computes {', '.join(wrong)} wrongly on {report.case!r}",
            hint="stop in it: --break FILE.py:LINE, or breakpoint() in the kernel",
        )
