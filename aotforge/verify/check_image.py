"""One image on all of its cases: executed, compared, judged. Runs in a worker process."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from aotforge.errors import AotforgeError
from aotforge.verify.compare import TILE, TILE_SCALE, Comparison, Expected
from aotforge.verify.dispatch import Launch, launch_of
from aotforge.verify.families import load_cases
from aotforge.verify.invocation import Case, Invocation
from aotforge.verify.tensors import Float
from aotforge.verify.verdict import ImageTask, OutputStats, Use, Verdict
from aotforge.virtual_gpu.emulator.classes import instruction_mix
from aotforge.virtual_gpu.emulator.program import Emulator, Program
from aotforge.virtual_gpu.interpreter.memory import Memory

SCHEDULES = (None, 0x5EED)
"""Waves one after another, and in one seeded random order."""
_SHOWN = 4  # a wrong image is wrong in every case: the first few tell
_LIMIT = 20_000_000  # wave-instructions of a workgroup: cases are small, so more is a loop without end


@dataclass(kw_only=True)
class _Tally:
    cases: list[str] = field(default_factory=list)
    runs: int = 0
    outputs: dict[str, OutputStats] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    faults: int = 0

    def note(self, output: str, found: Comparison, case: str) -> None:
        new = OutputStats(
            name=output, tensor=found.tensor, element=found.element, tile=found.tile, error=found.error, allowed=found.allowed, at=case
        )  # fmt: skip
        old = self.outputs.get(output, new)
        shown = new if new.tensor > old.tensor else old
        self.outputs[output] = replace(
            shown, element=max(old.element, new.element), tile=max(old.tile, new.tile)
        )


def check_image(task: ImageTask, *, kernels_root: Path, cache: Path) -> Verdict:
    """Try an image on every case that leads to it. Whatever is wrong with image or cases is in the verdict, not raised.

    Raises RulesError when the cases themselves cannot be loaded or lack values, ToolchainError, CacheError.
    """
    began = time.perf_counter()
    cases = load_cases(kernels_root, task.folder)
    tally = _Tally()
    if cases is not None:
        try:
            program = Emulator(task.arch, cache=cache).load(task.hsaco, task.asm)
        except AotforgeError as error:
            tally.failures.append(str(error))
        else:
            for use in task.uses:
                keys = dict(zip(use.kernel.keys, use.key, strict=True))
                _try_all(task, use, program, cases(use.kernel.name, keys), tally)
            tally.failures += [
                f"{name} is zero or infinite in every case that leads to this image: none tells whether it is right"
                for name in tally.outputs
                if name not in tally.told
            ]
    return Verdict(
        key=task.key,
        label=task.label,
        digest=task.digest,
        resources=task.resources,
        verifier_digest=task.verifier_digest,
        outcome="failed" if tally.failures else "passed" if tally.runs else "unverified",
        cases=tuple(tally.cases),
        runs=tally.runs,
        outputs=tuple(tally.outputs.values()),
        instructions=tally.counts.total(),
        mix=tuple((str(kind), count) for kind, count in instruction_mix(tally.counts).items()),
        failure=_told(tally.failures),
        faults=tally.faults,
        seconds=time.perf_counter() - began,
    )


def _told(failures: Sequence[str]) -> str:
    more = len(failures) - _SHOWN
    return "\n".join([*failures[:_SHOWN], *([f"and {more} more failures"] if more > 0 else [])])


def _try_all(task: ImageTask, use: Use, program: Program, cases: Sequence[Case], tally: _Tally) -> None:
    for number, case in enumerate(cases):
        for schedule in SCHEDULES:
            invocation = case.make()
            launch = launch_of(use, invocation.values)
            if launch is None:
                break
            if 0 in launch.grid:
                tally.failures += _unwritten(case.name, launch, invocation)
                break
            if case.name not in tally.cases:
                tally.cases.append(case.name)
            name = case.name if schedule is None else f"{case.name}, random schedule"
            # garbage in registers, LDS and scratch differs from run to run
            seed = 1 + 2 * number + (schedule is not None)
            tally.runs += 1
            try:
                report = program.launch(
                    launch.grid, launch.arguments, _memory(invocation), lds_bytes=task.resources.dynamic_lds_bytes,
                    schedule=schedule, seed=seed, limit=_LIMIT, jobs=1, checks=True, source=task.source,
                )  # fmt: skip
            except AotforgeError as error:
                tally.faults += 1
                tally.failures.append(f"{name} ({_shape(launch)}): {error}")
                continue
            tally.counts += report.counts
            _compare(invocation, name, tally)


def _unwritten(case: str, launch: Launch, invocation: Invocation) -> list[str]:
    """The library launches nothing on an empty grid: right only when there is nothing to write."""
    left = [name for name, tensor in invocation.outputs.items() if math.prod(tensor.shape)]
    return [f"{case} ({_shape(launch)}): nothing is launched, so nothing writes {name}" for name in left]


def _memory(invocation: Invocation) -> Memory:
    for tensor in invocation.inputs.values():
        tensor.storage.flags.writeable = False  # a store to an input is a fault at once
    tensors = {**invocation.inputs, **invocation.outputs}
    return Memory({name: tensor.storage for name, tensor in tensors.items()})


def _compare(invocation: Invocation, name: str, tally: _Tally) -> None:
    expected = invocation.expected()
    for output, tensor in invocation.outputs.items():
        actual = tensor.values()
        found = expected[output].compare(actual)
        tally.note(output, found, name)
        if expected[output].is_informative:
            tally.told.add(output)
        if not tensor.intact():
            tally.failures.append(f"{name}: elements outside of {output} were written")
        tally.failures += [f"{name}: {said}" for said in _complaints(output, expected[output], actual, found)]


def _complaints(output: str, expected: Expected, actual: Float, found: Comparison) -> list[str]:
    said = []
    if found.element > 1:
        wrong = np.argwhere(found.elements > 1)
        first = tuple(int(i) for i in wrong[0])
        said.append(
            f"{output} is wrong in {len(wrong)} of {found.elements.size} elements, worst {found.element:.4g} times its bound; "
            f"the first at {first} is {actual[first]:.6g} instead of {expected.bounded.value[first]:.6g}"
        )
    if found.tensor > 1:
        said.append(
            f"{output} errs by {found.error:.4g} where the same computation in the same precision allows {found.allowed:.4g}"
        )
    if found.tile > 1:
        first = tuple(int(i) for i in np.argwhere(found.tiles > 1)[0])
        at = (*first[:-2], first[-2] * TILE, first[-1] * TILE)
        said.append(f"the tile of {output} at {at} is scaled by {found.tiles[first] * TILE_SCALE:.2%}")
    return said


def _shape(launch: Launch) -> str:
    return "grid " + "x".join(str(n) for n in launch.grid)
