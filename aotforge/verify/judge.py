"""One image on all of its cases: executed, compared, judged. Runs in a worker process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from aotforge.emulator import Emulator, Program
from aotforge.errors import AotforgeError
from aotforge.interpret.memory import Memory
from aotforge.verify.bounds import TILE_SCALE
from aotforge.verify.dispatch import Launch, launch_of
from aotforge.verify.families import load_cases
from aotforge.verify.trial import Case, Trial
from aotforge.verify.values import ImageTask, Use, Verdict

SCHEDULES = (None, 0x5EED)
"""Waves one after another, and in one seeded random order."""
_LIMIT = 20_000_000  # wave-instructions of a workgroup: cases are small, so more is a loop without end


@dataclass(kw_only=True)
class _Tally:
    cases: list[str] = field(default_factory=list)
    runs: int = 0
    worst: float = 0.0
    worst_at: str = ""
    scale: float = 0.0
    instructions: int = 0
    failures: list[str] = field(default_factory=list)

    def note(self, worst: float, place: str) -> None:
        if worst > self.worst:
            self.worst, self.worst_at = worst, place


def judge(task: ImageTask, *, kernels_root: Path, cache: Path) -> Verdict:
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
    return Verdict(
        key=task.key,
        label=task.label,
        digest=task.digest,
        outcome="failed" if tally.failures else "passed" if tally.runs else "unverified",
        cases=tuple(tally.cases),
        runs=tally.runs,
        worst=tally.worst,
        worst_at=tally.worst_at,
        tile_scale=tally.scale * TILE_SCALE,
        instructions=tally.instructions,
        seconds=time.perf_counter() - began,
        failure="\n".join(tally.failures),
    )


def _try_all(task: ImageTask, use: Use, program: Program, cases: Sequence[Case], tally: _Tally) -> None:
    for number, case in enumerate(cases):
        for schedule in SCHEDULES:
            trial = case.make()
            launch = launch_of(use, trial.values)
            if launch is None or 0 in launch.grid:
                break
            if case.name not in tally.cases:
                tally.cases.append(case.name)
            name = case.name if schedule is None else f"{case.name}, random schedule"
            # garbage in registers, LDS and scratch differs from run to run
            seed = 1 + 2 * number + (schedule is not None)
            try:
                report = program.launch(
                    launch.grid, launch.arguments, _memory(trial), lds_bytes=task.dynamic_lds_bytes,
                    schedule=schedule, seed=seed, limit=_LIMIT, jobs=1,
                )  # fmt: skip
            except AotforgeError as error:
                tally.runs += 1
                tally.failures.append(f"{name} ({_shape(launch)}): {error}")
                continue
            tally.runs += 1
            tally.instructions += report.instructions
            _compare(trial, name, tally)


def _memory(trial: Trial) -> Memory:
    for tensor in trial.inputs.values():
        tensor.storage.flags.writeable = False  # a store to an input is a fault at once
    tensors = {**trial.inputs, **trial.outputs}
    return Memory({name: tensor.storage for name, tensor in tensors.items()})


def _compare(trial: Trial, name: str, tally: _Tally) -> None:
    expected = trial.expected()
    for output, tensor in trial.outputs.items():
        if not tensor.intact():
            tally.failures.append(f"{name}: elements outside of {output} were written")
        scale = float(expected[output].rescaled(tensor.values()).max(initial=0.0))
        tally.scale = max(tally.scale, scale)
        if scale > 1:
            tally.failures.append(f"{name}: a tile of {output} is scaled by {scale * TILE_SCALE:.2%}")
        misses = expected[output].misses(tensor.values())
        worst = float(misses.max(initial=0.0))
        tally.note(worst, f"{name}: {output}")
        if worst > 1:
            wrong = np.argwhere(misses > 1)
            first = tuple(int(i) for i in wrong[0])
            tally.failures.append(
                f"{name}: {output} is wrong in {len(wrong)} of {misses.size} elements, worst {worst:.4g} times its bound; "
                f"the first at {first} is {tensor.values()[first]:.6g} instead of {expected[output].value[first]:.6g}"
            )


def _shape(launch: Launch) -> str:
    return "grid " + "x".join(str(n) for n in launch.grid)
