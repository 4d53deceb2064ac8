"""A kernel's Python source on a case, run by Triton's interpreter and compared with the reference.

The cases (kernels/<family>/cases.py) are those on which the kernel's images are verified.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from aotforge.devtools.cost.candidates import CostRequest, find_candidates
from aotforge.devtools.selection import choose, find_case, find_kernel, key_numbers
from aotforge.errors import UnsupportedError, VerifyError
from aotforge.rules import Kernel, Scalar
from aotforge.verify.check_image import Results, compare
from aotforge.verify.interpreter.breakpoints import parse_location, run_with_debugger
from aotforge.verify.interpreter.dispatch import launches_of
from aotforge.verify.interpreter.machine import run_launch
from aotforge.verify.invocation import Case, require_cases
from aotforge.verify.verdict import OutputStats


@dataclass(frozen=True, kw_only=True)
class DebugReport:
    """`quit`: the user left the debugger, so outputs are not compared. `failures` are those of an image."""

    kernel: str
    case: str
    functional: Mapping[str, Scalar]
    constants: Mapping[str, Scalar]
    grid: tuple[int, int, int]
    outputs: tuple[OutputStats, ...]
    failures: tuple[str, ...]
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
        shares = (
            f"{output.name:6} largest error {output.error:.3g}; of the bounds {output.tensor:.2%} for the "
            f"tensor, {output.element:.2%} for an element, {output.tile:.2%} for a tile"
            for output in self.outputs
        )
        return [*head, *shares, *(self.failures or ["passed"])]

    def require_passed(self) -> None:
        """Raises VerifyError when an output is wrong or an input was written."""
        if self.failures:
            raise VerifyError(
                f"{self.kernel}'s source is wrong on {self.case!r}: {'; '.join(self.failures)}",
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
    results = Results()
    if finished:
        compare(invocation, "the source", results)
        changed = (name for name, tensor in invocation.inputs.items() if not tensor.unchanged())
        results.failures += [f"the input {name} was written" for name in changed]
    return DebugReport(
        kernel=kernel.name,
        case=chosen.name,
        functional=dict(choose(kernel, keys)),
        constants=dict(job.constants),
        grid=launch.grid,
        outputs=tuple(results.outputs.values()),
        failures=tuple(results.failures),
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
