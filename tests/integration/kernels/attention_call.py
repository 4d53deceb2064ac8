"""Attention calls as the library would make them, on guarded numpy buffers, run by the interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.rules import Scalar, Target
from aotforge.verify.tensors import Float, Guarded, Layout
from kernels.flash.call import DTYPE_KEY, Case, values_of
from kernels.flash.rules import FAMILY
from tests.support.run_operator import run_operator

__all__ = ["DTYPE_KEY", "FOLDER", "GFX908", "Case", "Guarded", "Layout", "Outcome", "run_case", "values_of"]

FOLDER = Path(__file__).parents[3] / "kernels" / "flash"
GFX908 = Target(arch="gfx908", wavefront=64, matrix="MFMA", lds_bytes=65536)


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


def _vector(case: Case) -> Guarded:
    # three elements between rows: L and D need not be dense
    shape = (1, 1, case.batch * case.heads_q, case.seqlen_q)
    return Guarded(shape, "fp32", Layout(row_padding=3))


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
    tensors = {name: Guarded(case.shape(name), case.dtype, case.layout, inputs[name]) for name in inputs}
    for name in ("Out", "DQ", "DK", "DV"):
        tensors[name] = Guarded(case.shape(name), case.dtype, case.layout)
    tensors["L"], tensors["D"] = _vector(case), _vector(case)
    call = {**values_of(case, tensors), **(values or {})}
    buffers = {name: tensor.storage for name, tensor in tensors.items()}
    for operator in ("attn_fwd", "attn_bwd"):
        run_operator(FAMILY, folder, operator, target=GFX908, values=call, buffers=buffers, override=override)
    rows = (case.batch, case.heads_q, case.seqlen_q)
    return Outcome(
        out=tensors["Out"].values(),
        lse=tensors["L"].values().reshape(rows),
        delta=tensors["D"].values().reshape(rows),
        dq=tensors["DQ"].values(),
        dk=tensors["DK"].values(),
        dv=tensors["DV"].values(),
        tensors=tensors,
    )
