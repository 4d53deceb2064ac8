"""Check of one image on all of its cases: executed and compared, in a worker process.

The worker is `python -m aotforge.verify.check_image FD PARENT KERNELS_ROOT CACHE [LANES=INTERPRETER...]`,
started by pool.py. It receives tasks and answers with verdicts or errors.
"""

import math
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from aotforge.base.workers import open_connection
from aotforge.errors import AotforgeError, DecodeError, RulesError, UnsupportedError
from aotforge.verify.compare import Comparison, Expected
from aotforge.verify.executors import DeviceImage, EmulatedImage, load_runner
from aotforge.verify.interpreter.dispatch import Use, launch_of
from aotforge.verify.invocation import (
    Case,
    Cases,
    ImageRunner,
    Invocation,
    LaunchCall,
    case_errors,
    load_cases,
)
from aotforge.verify.native.executor import NativeImage
from aotforge.verify.pool import serve
from aotforge.verify.specials import ENOUGH
from aotforge.verify.verdict import ImageTask, OutputStats, Verdict
from vgpu.emulator.classes import instruction_mix
from vgpu.emulator.hooks import PrintedText
from vgpu.emulator.interpreter_library import use_library
from vgpu.emulator.isa import approximations

_REPEATED = re.compile("|".join(EmulatedImage.runs[1:] + DeviceImage.runs[1:] + NativeImage.runs[1:]))
_PRINTED = 64  # texts of an image: a kernel may print for every element of every case
_PRINTED_CHARACTERS = 4096
_LISTED = 4  # a faulty image fails in every case: the first few show the fault


@dataclass(kw_only=True)
class Results:
    """Results of an image's launches so far."""

    cases: list[str] = field(default_factory=list)
    runs: int = 0
    outputs: dict[str, OutputStats] = field(default_factory=dict)
    informative: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    faults: int = 0
    lacking: int = 0
    """How many of the failures are what the virtual GPU does not support."""
    printed: list[str] = field(default_factory=list)
    texts: int = 0

    def add(self, output: str, found: Comparison, case: str) -> None:
        """Errors of one output of a launch."""
        new = OutputStats(
            name=output, tensor=found.tensor, element=found.element, tile=found.tile, error=found.error,
                allowed=found.allowed, at=case
        )  # fmt: skip
        old = self.outputs.get(output, new)
        worse = new if new.tensor > old.tensor else old
        element, tile = max(old.element, new.element), max(old.tile, new.tile)
        self.outputs[output] = replace(worse, element=element, tile=tile)

    def add_error(self, error: AotforgeError, launch: str = "") -> None:
        """An error of a launch, or of loading the image."""
        self.failures.append(f"{launch}{error}")
        # an instruction or operand at a line of the text, which is the image's: the emulator does not know it
        unknown = isinstance(error, DecodeError) and error.what.startswith("line ")
        self.lacking += unknown or isinstance(error, UnsupportedError)

    def add_print(self, found: PrintedText, case: str) -> None:
        """A text that a kernel printed."""
        if found.error:  # of a failed assertion, which is a failure
            return
        self.texts += 1
        if len(self.printed) < _PRINTED:
            text = found.text[:_PRINTED_CHARACTERS].rstrip("\n").replace("\n", "\n    ")
            self.printed.append(
                f"{case}: program {found.group}, wave {found.wave}, lane {found.lane}: {text}"
            )

    @property
    def failure(self) -> str:
        """The first failures; one that a case has in all its runs is listed once."""
        found = list(dict.fromkeys(_REPEATED.sub("", text, count=1) for text in self.failures))
        more = len(found) - _LISTED
        return "\n".join([*found[:_LISTED], *([f"and {more} more failures"] if more > 0 else [])])


def check_image(task: ImageTask, *, kernels_root: Path, cache: Path) -> Verdict:
    """The verdict on an image, errors of it included. Raises RulesError, ToolchainError, CacheError."""
    began = time.perf_counter()
    cases = load_cases(kernels_root, task.folder)
    results, device = Results(), ""
    if cases is not None:
        try:
            runner = load_runner(task, cache)
        except AotforgeError as error:
            results.add_error(error)
        else:
            device = runner.device
            check_uses(task, runner, cases, kernels_root, results)
    return replace(
        Verdict.failed(task, results.failure),
        outcome="failed" if results.failures else "passed" if results.runs else "unverified",
        cases=tuple(results.cases),
        runs=results.runs,
        outputs=tuple(results.outputs.values()),
        instructions=results.counts.total(),
        mix=tuple((str(kind), count) for kind, count in instruction_mix(results.counts).items()),
        faults=results.faults,
        printed=tuple(results.printed),
        texts=results.texts,
        approximated=tuple(approximations(results.counts).items()),
        unsupported=0 < results.lacking == len(results.failures),
        device=device,
        seconds=time.perf_counter() - began,
    )


def check_uses(
    task: ImageTask, runner: ImageRunner, cases: Cases, kernels_root: Path, results: Results
) -> None:
    """Adds findings and the results of all uses. Raises RulesError when the cases lack values."""
    results.failures += runner.findings()
    for use in task.uses:
        keys = dict(zip(use.kernel.keys, use.key, strict=True))
        try:
            with case_errors(kernels_root / task.folder):
                check_use(use, runner, cases(use.called, keys), results)
        except RulesError as error:
            if error.__cause__ is None:  # a value that the cases lack, not an exception of theirs
                raise
            results.failures.append(str(error))
        if runner.device and results.faults:  # the device executes nothing more for this process
            return
    results.failures += [
        f"{name} is zero or infinite in every case of this image: no case shows whether it is correct"
        for name in results.outputs
        if name not in results.informative
    ]


def check_use(use: Use, runner: ImageRunner, cases: Sequence[Case], results: Results) -> None:
    """Adds the results of the cases that are dispatched to the use, and of one of them on special numbers."""
    reached: list[Case] = []
    for number, case in enumerate(cases):
        if case.unless_reached and any(not one.unless_reached for one in reached):
            continue
        for run, label in enumerate(runner.runs):
            # garbage in registers, shared memory and scratch differs from run to run
            launched = _launch(use, runner, case, f"{case.name}{label}", run, 1 + 2 * number + run, results)
            if not launched:
                break
            if run == 0:
                reached.append(case)
            if runner.device and results.faults:  # after a fault a device executes nothing more
                return
    if chosen := _with_specials(reached):
        # ordinary numbers have to show that an output is not zero everywhere
        informative = {*results.informative}
        _launch(use, runner, chosen, chosen.name, 0, len(cases), results)
        results.informative = informative


def _with_specials(reached: Sequence[Case]) -> Case | None:
    """The smallest case that can hold all special numbers, or else the largest one, with them."""
    found = sorted((one for one in reached if one.special), key=lambda one: one.elements)
    if not found:
        return None
    chosen = next((one for one in found if one.elements >= ENOUGH), found[-1])
    assert chosen.special
    return replace(chosen, name=f"{chosen.name}, special numbers", make=chosen.special)


def _launch(
    use: Use, runner: ImageRunner, case: Case, name: str, run: int, seed: int, results: Results
) -> bool:
    """Adds the results of a launch; False when the case has none on this use."""
    invocation = case.make()
    launch = launch_of(use, invocation.values)
    if launch is None:
        return False
    grid = "grid " + "x".join(map(str, launch.grid))
    if 0 in launch.grid:
        # the library launches nothing: correct only without elements to write
        results.failures += [
            f"{case.name} ({grid}): nothing is launched, so nothing writes {output}"
            for output, tensor in invocation.outputs.items()
            if math.prod(tensor.shape)
        ]
        return False
    if case.name not in results.cases:
        results.cases.append(case.name)
    results.runs += 1
    # the first run prints; the others print the same texts
    prints = None if run else partial(results.add_print, case=case.name)
    call = LaunchCall(
        use=use, launch=launch, invocation=invocation, case=case.name, number=run, seed=seed, on_print=prints
    )
    try:
        results.counts += runner.run(call)
    except AotforgeError as error:
        results.faults += 1
        results.add_error(error, f"{name} ({grid}): ")
        return True
    compare(invocation, name, results, truncates_sums=runner.truncates_sums)
    return True


def compare(invocation: Invocation, name: str, results: Results, *, truncates_sums: bool = False) -> None:
    """Adds errors and failures of a launch's outputs."""
    every = invocation.expected()
    for output, tensor in invocation.outputs.items():
        expected = every[output]
        if truncates_sums and isinstance(expected, Expected):
            expected = expected.with_cut_off_sums
        found = expected.compare(tensor.values())
        results.add(output, found, name)
        if expected.is_informative:
            results.informative.add(output)
        if not tensor.intact():
            results.failures.append(f"{name}: elements outside of {output} were written")
        results.failures += [f"{name}: {text}" for text in found.violations(output)]


def main(arguments: Sequence[str]) -> None:
    """Check images until the connection closes or the parent ends."""
    connection, own = open_connection(arguments)
    kernels_root, cache = map(Path, own[:2])
    for one in own[2:]:
        lanes, _, path = one.partition("=")
        use_library(Path(path), int(lanes), cache, "checks")
    serve(connection, partial(check_image, kernels_root=kernels_root, cache=cache))


if __name__ == "__main__":
    main(sys.argv[1:])
