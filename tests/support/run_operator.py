"""Runs all steps of an operator on numpy buffers in Triton's interpreter, with the library's settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aotforge.rules import Family, Scalar, Target
from aotforge.verify.interpreter.dispatch import SourceLaunch, Values, select
from aotforge.verify.interpreter.machine import run_launch
from aotforge.verify.interpreter.number_formats import Array
from vgpu.memory import Memory


def run_operator(
    family: Family,
    folder: Path,
    operator: str,
    *,
    target: Target,
    values: Values,
    buffers: Mapping[str, Array],
    override: Mapping[str, Scalar] | None = None,
) -> tuple[SourceLaunch, ...]:
    """Run every step of an operator; the launches, in order, without those of an empty grid.

    `folder` holds the family's sources. Pointers in `values` are addresses inside `buffers`. Raises
    UnsupportedError before
    anything runs when one step does not serve the call, ExecutionError.
    """
    kernels = sorted((k for k in family.kernels if k.operator == operator), key=lambda k: k.step)
    launches = [select(kernel, target, values, override=override) for kernel in kernels]
    memory = Memory(buffers)
    done = tuple(launch for launch in launches if 0 not in launch.grid)
    for launch in done:
        run_launch(launch, folder, memory)
    return done
