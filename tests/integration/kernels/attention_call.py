"""Attention calls as the library would make them, on guarded numpy buffers, run by the interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.rules import Family, Scalar, Target
from aotforge.verify.interpreter.dispatch import Values
from aotforge.verify.interpreter.number_formats import Array
from aotforge.verify.tensors import Float, Guarded, Layout
from kernels.flash.call import DTYPE_KEY, Case, tensor_of, values_of
from kernels.flash.rules import FAMILY
from tests.support.source_launches import SourceLaunch, run_launch, select
from vgpu.memory import Memory

__all__ = [
    "DTYPE_KEY",
    "FOLDER",
    "GFX908",
    "Case",
    "Guarded",
    "Layout",
    "Outcome",
    "run_case",
    "run_operator",
    "values_of",
]

FOLDER = Path(__file__).parents[3] / "kernels" / "flash"
GFX908 = Target(arch="gfx908", vendor="amd", warp_size=64, matrix="MFMA", shared_bytes=65536)


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
    launches = [select(kernel, target, values, override=override, kernel_source=True) for kernel in kernels]
    memory = Memory(buffers)
    done = tuple(launch for launch in launches if 0 not in launch.grid)
    for launch in done:
        run_launch(launch, folder, memory)
    return done


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the kernels wrote, in logical shapes; rows of L and D are (batch, heads, seqlen_q)."""

    out: Float
    lse: Float
    delta: Float
    dq: Float
    dk: Float
    dv: Float
    tensors: Mapping[str, Guarded]


def run_case(
    case: Case,
    *,
    override: Mapping[str, Scalar] | None = None,
    values: Mapping[str, int | float] | None = None,
    folder: Path = FOLDER,
) -> Outcome:
    """Forward, then backward from the forward's own results, on gfx908's configurations.

    `override` replaces constants such as block sizes, `values` operator values such as strides, `folder` the
    kernels' sources.
    """
    inputs = case.inputs()
    tensors = {name: tensor_of(case, name, inputs[name]) for name in inputs}
    tensors |= {name: tensor_of(case, name) for name in ("Out", "DQ", "DK", "DV", "L", "D")}
    call = {**values_of(case, tensors), **(values or {})}
    buffers = {name: tensor.storage for name, tensor in tensors.items()}
    for operator in ("attn_fwd", "attn_bwd"):
        run_operator(FAMILY, folder, operator, target=GFX908, values=call, buffers=buffers, override=override)
    return Outcome(
        out=tensors["Out"].values(),
        lse=tensors["L"].values(),
        delta=tensors["D"].values(),
        dq=tensors["DQ"].values(),
        dk=tensors["DK"].values(),
        dv=tensors["DV"].values(),
        tensors=tensors,
    )
