"""A kernel's Python source on a case, run by Triton's interpreter and compared with the reference.

The cases (kernels/<family>/cases.py) are those on which the kernel's images are verified.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from aotforge.devtools.cost.candidates import CostRequest, find_candidates
from aotforge.devtools.selection import choose, find_case, find_kernel, key_numbers
from aotforge.errors import UnsupportedError, VerifyError
from aotforge.rules import Kernel, Scalar
from aotforge.verify.compare import TILE_SCALE, Exact, Expected
from aotforge.verify.interpreter.breakpoints import parse_location, run_with_debugger
from aotforge.verify.interpreter.dispatch import launches_of
from aotforge.verify.interpreter.machine import run_launch
from aotforge.verify.invocation import Case, require_cases
from aotforge.verify.tensors import Guarded


@dataclass(frozen=True, kw_only=True)
class OutputReport:
    """`worst` is the largest error in multiples of its bound, at most 1 when correct; `worst_at` its element;
    `error` the largest absolute error; `tile_scale` the largest scaling of a tile; `wrong` elements of
    `elements`; `intact`: nothing outside was written."""

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
        """Within its bounds, no tile scaled, nothing outside written."""
        return self.worst <= 1 and self.tile_scale <= TILE_SCALE and self.intact

    def line(self) -> str:
        """For people."""
        return (
            f"{self.name:6} {'passed' if self.passed else 'FAILED'}  "
            f"worst {self.worst:.3g} times its bound at {self.worst_at}, "
            f"largest error {self.error:.3g}, tiles scaled by {self.tile_scale:.2%} at most, "
            f"{self.wrong} of {self.elements} elements wrong"
            + ("" if self.intact else "; elements outside of it were written")
        )


@dataclass(frozen=True, kw_only=True)
class DebugReport:
    """`quit`: the user left the debugger, so outputs are not compared. `changed_inputs` are empty for a
    correct kernel."""

    kernel: str
    case: str
    functional: Mapping[str, Scalar]
    constants: Mapping[str, Scalar]
    grid: tuple[int, int, int]
    outputs: tuple[OutputReport, ...]
    changed_inputs: tuple[str, ...]
    seconds: float
    quit: bool = False

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For people."""
        functional = ", ".join(f"{name} {value}" for name, value in self.functional.items())
        constants = ", ".join(f"{name} {value}" for name, value in self.constants.items())
        head = [
            f"{self.kernel} on {self.case!r}: {functional}",
            f"grid {'x'.join(map(str, self.grid))}, {constants}; {self.seconds:.2f} s in the interpreter",
        ]
        if self.quit:
            return [*head, "the debugger was quit: outputs are not compared"]
        changed = [f"the input {name} was written" for name in self.changed_inputs]
        return [*head, *(one.line() for one in self.outputs), *changed]

    def require_passed(self) -> None:
        """Raises VerifyError when an output is wrong or an input was written."""
        wrong = [one.name for one in self.outputs if not one.passed] + list(self.changed_inputs)
        if wrong:
            raise VerifyError(
                f"{self.kernel}'s source computes {', '.join(wrong)} wrongly on {self.case!r}",
                hint="stop in it: --break FILE.py:LINE, or breakpoint() in the kernel",
            )


def debug(
    root: Path,
    name: str,
    *,
    arch: str = "gfx908",
    case: str | None = None,
    keys: Mapping[str, str],
    constants: Mapping[str, str],
    breaks: Sequence[str] = (),
    program: tuple[int, int, int] | None = None,
) -> DebugReport:
    """Run and compare. `keys` and `constants` are the user's texts, `breaks` FILE.py:LINE, in `program` only.

    Raises UnknownNameError, UnsupportedError, RulesError, ExecutionError and what the kernel's source raises.
    """
    folder, kernel, cases = _find(root, name, keys)
    chosen = find_case(cases, case)
    locations = [parse_location(text, folder) for text in breaks]
    invocation = chosen.make()
    settings = (constants,) if constants else ()
    request = CostRequest(root=root, cache=root, images=(name,), arch=arch, keys=keys, settings=settings)
    (candidate,) = find_candidates(request)
    served = next(launches_of(candidate.plan, invocation.values), None)
    if served is None:
        raise UnsupportedError(
            f"no setting of {name} on {arch} serves {chosen.name!r}", hint="another --case"
        )
    job, launch = served
    memory = invocation.memory()
    began = time.perf_counter()
    finished = 0 in launch.grid or run_with_debugger(
        partial(run_launch, job, launch, folder, memory), locations, program
    )
    seconds = time.perf_counter() - began
    expected = invocation.expected() if finished else {}
    return DebugReport(
        kernel=kernel.name,
        case=chosen.name,
        functional=dict(choose(kernel, keys)),
        constants=dict(job.constants),
        grid=launch.grid,
        outputs=tuple(_output(name, invocation.outputs[name], known) for name, known in expected.items()),
        changed_inputs=tuple(name for name, tensor in invocation.inputs.items() if not tensor.unchanged()),
        seconds=seconds,
        quit=not finished,
    )


def list_cases(root: Path, kernel: str, keys: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the cases of a kernel. Raises what `debug` raises before anything runs."""
    return tuple(case.name for case in _find(root, kernel, keys)[2])


def _find(root: Path, name: str, keys: Mapping[str, str]) -> tuple[Path, Kernel, list[Case]]:
    """The family's folder, the kernel, and the cases of one functional."""
    loaded, kernel = find_kernel(root, name)
    numbers = key_numbers(kernel, choose(kernel, keys))
    cases = require_cases(root / "kernels", loaded.folder)(kernel.name, numbers)
    return root / "kernels" / loaded.folder, kernel, list(cases)


def _output(name: str, tensor: Guarded, expected: Expected | Exact) -> OutputReport:
    found = expected.compare(tensor.values())
    misses = found.elements
    at = np.unravel_index(int(misses.argmax()), misses.shape) if misses.size else ()
    return OutputReport(
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
