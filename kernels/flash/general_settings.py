"""Settings of the general kernels from `manifests/tuning/`: the last rung of every ladder, for what no other
image of a profile serves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from aotforge.base.tuning import tuning
from aotforge.rules import Functional, GeneralSetting, Scalar, Target

from .backward_settings import APART, WIDTHS

_SOURCES = {"attn_fwd": "general_forward.py"}


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A configuration for some dtypes (all when empty).

    A program makes `part` columns of a block's results in pieces of at most `piece`, and multiplies `step`
    columns at a time. `mfma` is the
    matrix instruction's height and width (0: the compiler's choice). `archs`: those of the file that it is
    for (all when empty).
    """

    block_m: int
    block_n: int = 0
    num_warps: int = 4
    waves_per_eu: int = 0
    mfma: int = 0
    kpack: int = 1
    part: int = 128
    piece: int = 128
    step: int = 32
    dtypes: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()

    def setting(self, kernel: str, dtype: str, *, window: bool, apart: bool) -> GeneralSetting:
        """The image for calls with a window, or for all others."""
        constants: dict[str, Scalar] = {"BLOCK_M": self.block_m, "STEP": self.step}
        name = f"dtype={dtype}"
        if kernel != "bwd_preprocess":
            constants |= {"BLOCK_N": self.block_n, "PART": self.part, "PIECE": self.piece, "WINDOW": window}
            name += ",mask=window" if window else ",mask=full or bias"
        if kernel == "bwd_dk_dv":
            constants["APART"] = apart
        return GeneralSetting(
            source=_SOURCES.get(kernel, "general_backward.py"),
            name=name,
            constants=constants,
            hinted=False,
            num_warps=self.num_warps,
            num_stages=1,
            waves_per_eu=self.waves_per_eu,
            matrix_instr_nonkdim=self.mfma,
            kpack=self.kpack,
            # a product rounded in the maximum and not in the difference makes large scores overflow
            options={"enable_fp_fusion": False} if kernel == "attn_fwd" else {},
        )


@cache
def _table(kernel: str, arch: str, warp_size: int) -> tuple[Tuned, ...]:
    return tuning().rows(f"flash.{kernel}_general", arch, warp_size, Tuned)


def general_settings(kernel: str, target: Target, functional: Functional) -> tuple[GeneralSetting, ...]:
    """The general image for calls of up to the widest head_dim; none below, whose calls take it, too, and
    none without a row."""
    if functional["width"] != WIDTHS[-1]:
        return ()
    dtype = str(functional["dtype"])
    row = next(
        (
            row
            for row in _table(kernel, target.arch, target.warp_size)
            if (not row.dtypes or dtype in row.dtypes) and (not row.archs or target.arch in row.archs)
        ),
        None,
    )
    if row is None:
        return ()
    traits = tuning().of(target.arch, target.warp_size)[1].traits
    window = functional.get("mask") == "window"
    return (row.setting(kernel, dtype, window=window, apart=APART in traits and dtype == "fp32"),)
