"""Tuned configurations of the backward kernels, per arch, as data; SETTINGS.md has the reasons.

Usually two images serve a functional: one with hints for aligned calls of exactly its width whose L and D (and bias) are dense by rows, and
the general one. The first configuration of a table that fits is taken; where none fits, the arch does not serve the
functional.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aotforge.rules import Condition, Equals, Functional, Setting, Target

WIDTHS = (16, 32, 48, 64, 80, 96, 128, 160, 192, 224, 256, 512)
"""Widths of heads with images; a call takes the smallest one at or above the larger of its head_dim and head_dim_v."""


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A configuration for widths up to `max_width`, and for some dtypes (all when empty).

    `parts` programs make the columns of a block's results, in pieces of at most `piece`; one holds the block's own tiles in registers,
    several read them again for each step. `mfma` is the matrix instruction's height and width (0: the compiler's choice).
    `plain`: without bias and dropout only; `exact`: with an image with hints, which spills where loops of a constant length are unrolled.
    """

    max_width: int
    block_m: int
    block_n: int
    num_warps: int = 4
    waves_per_eu: int = 0
    mfma: int = 0
    parts: int = 1
    hold: bool = True
    piece: int = 128
    dtypes: tuple[str, ...] = ()
    plain: bool = False
    exact: bool = True

    def fits(self, functional: Functional) -> bool:
        """Whether this configuration is for the functional."""
        plain = functional.get("mask") != "bias" and not functional.get("dropout")
        return (
            int(functional["width"]) <= self.max_width
            and (not self.dtypes or functional["dtype"] in self.dtypes)
            and (plain or not self.plain)
        )

    def setting(
        self, kernel: str, width: int, when: tuple[Condition, ...], *, exact: bool, apart: bool
    ) -> Setting:
        """The image with hints for calls for which `when` holds, or the general one; `apart`: see _APART."""
        part = width // self.parts
        piece = min(self.piece, 1 << part.bit_length() - 1)
        constants: dict[str, int | str | bool] = {"EXACT": exact, "BLOCK_M": self.block_m, "PIECE": piece}
        if kernel != "bwd_preprocess":
            constants |= {"BLOCK_N": self.block_n, "PART": part, "HOLD": self.hold}
        if kernel == "bwd_dk_dv":
            constants["APART"] = apart
        return Setting(
            constants=constants,
            when=when,
            hinted=exact,
            unaligned=not exact,
            num_warps=self.num_warps,
            num_stages=1,
            waves_per_eu=self.waves_per_eu,
            matrix_instr_nonkdim=self.mfma,
        )


Table = Mapping[str, tuple[Tuned, ...]]
_HALVES = ("fp16", "bf16")

# MI100: 256 VGPRs and 256 AGPRs per lane and SIMD, so at most 128 VGPRs let two waves share a SIMD and hide
# each other's loads; 64 KiB of LDS per CU, so at most 32 KiB a workgroup. MFMA 16x16 needs fewer registers
# than 32x32 at the same rate.
_GFX908: Table = {
    "bwd_preprocess": (
        Tuned(max_width=64, block_m=64, block_n=0),
        Tuned(max_width=512, block_m=32, block_n=0),
    ),
    "bwd_dk_dv": (
        Tuned(max_width=32, dtypes=_HALVES, block_m=32, block_n=128, mfma=16, waves_per_eu=2),
        Tuned(max_width=64, dtypes=_HALVES, block_m=32, block_n=64, mfma=16, waves_per_eu=2),
        Tuned(max_width=128, dtypes=_HALVES, block_m=16, block_n=64, mfma=16, num_warps=8),
        Tuned(max_width=80, block_m=16, block_n=64, mfma=16, num_warps=8),
        Tuned(max_width=192, parts=2, hold=False, block_m=16, block_n=64, mfma=16, num_warps=8),
        Tuned(
            max_width=256, dtypes=_HALVES, parts=2, hold=False, block_m=16, block_n=64, mfma=16, num_warps=8
        ),
        Tuned(max_width=256, plain=True, parts=2, hold=False, block_m=16, block_n=64, mfma=16, num_warps=8),
        Tuned(max_width=256, parts=2, hold=False, block_m=16, block_n=32, mfma=16),
        Tuned(max_width=512, parts=4, hold=False, block_m=16, block_n=64, mfma=16, num_warps=8),
    ),
    "bwd_dq": (
        Tuned(max_width=32, dtypes=_HALVES, plain=True, block_m=128, block_n=64, mfma=16, waves_per_eu=2),
        Tuned(max_width=64, dtypes=_HALVES, plain=True, block_m=64, block_n=32, mfma=16),
        Tuned(max_width=64, dtypes=_HALVES, block_m=64, block_n=32, mfma=16, waves_per_eu=2),
        Tuned(max_width=128, dtypes=_HALVES, block_m=64, block_n=32, mfma=16, num_warps=8),
        Tuned(max_width=128, block_m=64, block_n=16, mfma=16, num_warps=8),
        Tuned(max_width=256, parts=2, hold=False, block_m=64, block_n=16, mfma=16, num_warps=8),
        Tuned(max_width=512, parts=4, hold=False, block_m=64, block_n=16, mfma=16, num_warps=8),
    ),
}

# RDNA3's WMMA takes A and B twice over, once per half of the wave: 8 registers for a 16x16 block of halves where
# RDNA4 needs 4. So few rows per wave (16 warps) and narrow steps, and nothing held from head_dim 80 on; nothing here has been timed.
_GFX11: Table = {
    "bwd_preprocess": (Tuned(max_width=512, block_m=32, block_n=0, num_warps=8),),
    "bwd_dk_dv": (
        Tuned(max_width=32, dtypes=_HALVES, block_m=16, block_n=32, num_warps=8),
        Tuned(max_width=64, dtypes=_HALVES, plain=True, block_m=16, block_n=64, num_warps=16),
        Tuned(max_width=64, hold=False, block_m=16, block_n=32, num_warps=16),
        Tuned(max_width=128, parts=2, hold=False, block_m=16, block_n=64, num_warps=16),
        Tuned(max_width=256, dtypes=_HALVES, parts=2, hold=False, block_m=16, block_n=64, num_warps=16),
        Tuned(max_width=256, exact=False, parts=4, hold=False, block_m=16, block_n=32, num_warps=16),
        Tuned(max_width=512, plain=True, parts=8, hold=False, block_m=16, block_n=64, num_warps=16),
        Tuned(max_width=512, dtypes=_HALVES, parts=8, hold=False, block_m=16, block_n=64, num_warps=16),
        Tuned(max_width=512, parts=16, hold=False, block_m=16, block_n=64, num_warps=16),
    ),
    "bwd_dq": (
        Tuned(max_width=32, dtypes=_HALVES, block_m=32, block_n=16, num_warps=8),
        Tuned(max_width=64, dtypes=_HALVES, plain=True, block_m=64, block_n=16, num_warps=16),
        Tuned(max_width=64, hold=False, block_m=32, block_n=16, num_warps=16),
        Tuned(max_width=256, parts=2, hold=False, block_m=64, block_n=16, num_warps=16),
        Tuned(max_width=512, parts=8, hold=False, block_m=64, block_n=16, num_warps=16),
    ),
}

# No matrix instructions: as the forward's, small pieces leave registers to larger tiles.
_GFX906: Table = {
    "bwd_preprocess": (Tuned(max_width=512, block_m=32, block_n=0),),
    "bwd_dk_dv": (
        Tuned(max_width=64, dtypes=("fp16",), plain=True, block_m=16, block_n=32, hold=False, piece=32),
        Tuned(
            max_width=128, dtypes=("fp16",), plain=True, block_m=16, block_n=32, parts=2, hold=False, piece=32
        ),
        Tuned(max_width=64, block_m=16, block_n=16, hold=False, piece=32),
        Tuned(max_width=128, block_m=16, block_n=16, parts=2, hold=False, piece=32),
        Tuned(max_width=256, block_m=16, block_n=16, parts=4, hold=False, piece=32),
        Tuned(max_width=512, block_m=16, block_n=16, parts=8, hold=False, piece=32),
    ),
    "bwd_dq": (
        Tuned(max_width=64, dtypes=("fp16",), plain=True, block_m=32, block_n=32, hold=False, piece=32),
        Tuned(
            max_width=128, dtypes=("fp16",), plain=True, block_m=16, block_n=32, parts=2, hold=False, piece=32
        ),
        Tuned(max_width=64, block_m=16, block_n=16, hold=False, piece=32),
        Tuned(max_width=128, block_m=16, block_n=16, parts=2, hold=False, piece=32),
        Tuned(max_width=256, block_m=16, block_n=16, parts=4, hold=False, piece=32),
        Tuned(max_width=512, block_m=16, block_n=16, parts=8, hold=False, piece=32),
    ),
}

_WIDE: Table = {
    "bwd_preprocess": (Tuned(max_width=512, block_m=32, block_n=0),),
    "bwd_dk_dv": (
        Tuned(max_width=128, dtypes=_HALVES, block_m=16, block_n=32),
        Tuned(max_width=128, plain=True, block_m=16, block_n=64, mfma=16, num_warps=8),
        Tuned(max_width=128, exact=False, block_m=16, block_n=64, mfma=16, num_warps=8),
        Tuned(max_width=256, parts=2, hold=False, block_m=16, block_n=64, mfma=16, num_warps=8),
        Tuned(max_width=512, parts=4, hold=False, block_m=16, block_n=64, mfma=16, num_warps=8),
    ),
    "bwd_dq": (
        Tuned(max_width=128, dtypes=_HALVES, block_m=32, block_n=32),
        Tuned(max_width=128, block_m=64, block_n=16, mfma=16, num_warps=8),
        Tuned(max_width=256, parts=2, hold=False, block_m=64, block_n=16, mfma=16, num_warps=8),
        Tuned(max_width=512, parts=4, hold=False, block_m=64, block_n=16, mfma=16, num_warps=8),
    ),
}
"""Wavefronts of 64 lanes: compiles without scratch for gfx90a and gfx942; nothing here has been timed."""

_NARROW: Table = {
    "bwd_preprocess": (Tuned(max_width=512, block_m=32, block_n=0, num_warps=8),),
    "bwd_dk_dv": (
        Tuned(max_width=64, dtypes=_HALVES, block_m=16, block_n=32, num_warps=8),
        Tuned(max_width=128, dtypes=_HALVES, plain=True, block_m=16, block_n=64, num_warps=16),
        Tuned(max_width=64, hold=False, block_m=16, block_n=32, num_warps=16),
        Tuned(max_width=128, parts=2, hold=False, block_m=16, block_n=64, num_warps=16),
        Tuned(max_width=256, dtypes=_HALVES, parts=2, hold=False, block_m=16, block_n=64, num_warps=16),
        Tuned(max_width=256, exact=False, parts=4, hold=False, block_m=16, block_n=32, num_warps=16),
        Tuned(max_width=512, plain=True, parts=8, hold=False, block_m=16, block_n=64, num_warps=16),
        Tuned(max_width=512, dtypes=_HALVES, parts=8, hold=False, block_m=16, block_n=64, num_warps=16),
        Tuned(max_width=512, parts=16, hold=False, block_m=16, block_n=64, num_warps=16),
    ),
    "bwd_dq": (
        Tuned(max_width=64, dtypes=_HALVES, block_m=32, block_n=16, num_warps=8),
        Tuned(max_width=128, dtypes=_HALVES, plain=True, block_m=32, block_n=16, num_warps=8),
        Tuned(max_width=64, hold=False, block_m=32, block_n=16, num_warps=16),
        Tuned(max_width=256, parts=2, hold=False, block_m=64, block_n=16, num_warps=16),
        Tuned(max_width=512, parts=8, hold=False, block_m=64, block_n=16, num_warps=16),
    ),
}
"""Wavefronts of 32 lanes: twice the wavefronts for the same registers per lane; compiles without scratch for gfx12."""

# NVIDIA: at most 255 registers per thread, so fewer columns per program where 16 wavefronts of 32 lanes hold all
_NVIDIA: Table = {
    **_NARROW,
    "bwd_dk_dv": (
        Tuned(max_width=64, dtypes=_HALVES, block_m=16, block_n=32, num_warps=8),
        Tuned(
            max_width=128,
            dtypes=_HALVES,
            plain=True,
            parts=2,
            hold=False,
            block_m=32,
            block_n=64,
            num_warps=8,
        ),
        *_NARROW["bwd_dk_dv"][2:4],
        Tuned(max_width=256, plain=True, parts=2, hold=False, block_m=16, block_n=64, num_warps=16),
        *_NARROW["bwd_dk_dv"][4:],
    ),
}

_BY_ARCH: Mapping[str, Table] = {"gfx906": _GFX906, "gfx908": _GFX908, "gfx11": _GFX11, "sm_": _NVIDIA}
"""By the name of an arch or its beginning; at most one fits."""

_APART = ("gfx908",)
"""Archs whose fp32 images add the products of a block of queries to each other before they add them to dV: one sum over 2048 queries errs
six times as much, more than PyTorch's tests allow. Elsewhere it has not been tried, or the registers do not suffice."""


_UNROLLED = ("gfx11", "gfx12")
"""Archs whose fp32 images with hints would spill where a program does not hold its block, up to head_dim 256: there loops over columns
have a constant length, and the compiler unrolls them."""


def backward_settings(kernel: str, target: Target, functional: Functional) -> tuple[Setting, ...]:
    """The configurations of one backward kernel, in the order in which the runtime tries them; the last one serves every call."""
    general = _WIDE if target.warp_size == 64 else _NARROW
    table = next((table for name, table in _BY_ARCH.items() if target.arch.startswith(name)), general)
    found = next((entry for entry in table[kernel] if entry.fits(functional)), None)
    if found is None:
        return ()
    width = int(functional["width"])
    wanted = {"head_dim_v": width, "stride_dm": 1}
    if kernel != "bwd_preprocess":
        wanted |= {"head_dim": width, "stride_lm": 1}
    if functional.get("mask") == "bias":
        wanted["stride_bn"] = 1
    when = tuple(Equals(value=name, to=number) for name, number in wanted.items())
    apart = target.arch in _APART and functional["dtype"] == "fp32"
    unrolled = functional["dtype"] == "fp32" and 64 < width <= 256 and not found.hold
    exact = found.exact and not (unrolled and target.arch.startswith(_UNROLLED))
    return (
        *([found.setting(kernel, width, when, exact=True, apart=apart)] if exact else []),
        found.setting(kernel, width, (), exact=False, apart=apart),
    )
