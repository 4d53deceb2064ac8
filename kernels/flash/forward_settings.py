"""Tuned configurations of the forward kernel, per arch, as data; SETTINGS.md has the reasons.

A call whose tensors are aligned and whose heads have exactly the image's width takes an image with hints, every other call the
general one: no hints, columns beyond head_dim masked. The first configuration of a table that fits a functional is
taken; where none fits, the arch does not serve it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aotforge.rules import Between, Condition, Equals, Functional, Setting, Target


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A configuration for widths up to `max_width` and some dtypes (all when empty), with at most `features` of bias and dropout.

    `block_n` counts keys; `parts` divide the columns of Out among programs, `piece` bounds those of a tile; without `hold` the queries
    are not kept in registers; `mfma` is the matrix instruction's height and width (0: the compiler's choice); `waves_per_eu` bounds the
    registers. `few` is for calls of at most 16 queries and packs heads into a block, `general` for the general image alone.
    """

    max_width: int
    block_m: int
    block_n: int
    num_warps: int = 4
    num_stages: int = 1
    waves_per_eu: int = 0
    mfma: int = 0
    dtypes: tuple[str, ...] = ()
    parts: int = 1
    piece: int = 512
    hold: bool = True
    features: int = 2
    few: bool = False
    general: bool = False

    def fits(self, functional: Functional) -> bool:
        """Whether this configuration is for the functional."""
        return (
            int(functional["width"]) <= self.max_width
            and (not self.dtypes or functional["dtype"] in self.dtypes)
            and bool(functional["dropout"]) + (functional["mask"] == "bias") <= self.features
        )

    def setting(self, width: int, when: tuple[Condition, ...], *, general: bool) -> Setting:
        """The image with hints for calls for which `when` holds, or the general one."""
        step = 0 if self.hold else min(self.piece, width & -width)
        columns = {"PART": width // self.parts, "PIECE": self.piece, "EXACT": not general, "STEP": step}
        few = (Between(value="seqlen_q", low=0, high=16),) if self.few else ()
        return Setting(
            constants={"BLOCK_M": self.block_m, "BLOCK_N": self.block_n, **columns, "PACKED": self.few},
            when=(*when, *few),
            hinted=not general,
            unaligned=general,
            num_warps=self.num_warps,
            num_stages=self.num_stages,
            waves_per_eu=self.waves_per_eu,
            matrix_instr_nonkdim=self.mfma,
            # a product rounded in the maximum and not in the difference makes large scores overflow
            options={"enable_fp_fusion": False},
        )


Table = tuple[Tuned, ...]
_HALVES = ("fp16", "bf16")
_FEW = (
    # one block of keys in flight while another is multiplied: few queries over many keys wait for memory only
    Tuned(few=True, features=0, dtypes=_HALVES, max_width=64, block_m=16, block_n=64, num_stages=2),
    Tuned(few=True, features=0, dtypes=_HALVES, max_width=128, block_m=16, block_n=32, num_stages=2),
)

# MI100: 256 VGPRs and 256 AGPRs per lane and SIMD, so at most 128 VGPRs let two waves share a SIMD and hide
# each other's loads; 64 KiB of LDS per CU, so at most 32 KiB a workgroup. MFMA 16x16 needs fewer registers
# than 32x32 at the same rate.
_GFX908: Table = (
    *_FEW,
    Tuned(dtypes=_HALVES, features=1, max_width=64, block_m=128, block_n=64, mfma=32, waves_per_eu=2),
    Tuned(dtypes=_HALVES, max_width=64, block_m=128, block_n=32, num_stages=2, mfma=32, waves_per_eu=2),
    Tuned(dtypes=("fp16",), max_width=128, block_m=128, block_n=64, mfma=16, num_warps=8),
    Tuned(dtypes=_HALVES, max_width=128, block_m=128, block_n=32, num_stages=2, mfma=16, num_warps=8),
    Tuned(dtypes=_HALVES, max_width=192, block_m=64, block_n=32, mfma=16, num_warps=8),
    Tuned(dtypes=_HALVES, max_width=224, block_m=64, block_n=16, mfma=16, num_warps=8),
    Tuned(dtypes=("fp16",), max_width=256, block_m=64, block_n=32, mfma=16, num_warps=8),
    Tuned(dtypes=_HALVES, features=0, max_width=256, block_m=64, block_n=32, mfma=16, num_warps=8),
    Tuned(dtypes=_HALVES, max_width=256, block_m=64, block_n=16, mfma=16, num_warps=8),
    Tuned(dtypes=("fp16",), max_width=512, block_m=32, block_n=16, mfma=16, num_warps=8),
    Tuned(dtypes=_HALVES, features=0, max_width=512, block_m=32, block_n=16, mfma=16, num_warps=8),
    Tuned(dtypes=_HALVES, max_width=512, block_m=16, block_n=16, mfma=16),
    Tuned(max_width=64, block_m=64, block_n=32, mfma=16),
    Tuned(max_width=96, block_m=64, block_n=16, mfma=16, num_warps=8),
    Tuned(max_width=128, block_m=64, block_n=32, mfma=16, num_warps=8),
    Tuned(max_width=192, features=0, block_m=32, block_n=16, mfma=16, num_warps=8),
    Tuned(max_width=256, block_m=32, block_n=16, mfma=16),
    Tuned(max_width=512, block_m=16, block_n=16, mfma=16),
    Tuned(general=True, dtypes=_HALVES, max_width=64, block_m=64, block_n=32, mfma=16),
    Tuned(general=True, dtypes=_HALVES, max_width=128, block_m=64, block_n=16, mfma=16),
    Tuned(general=True, dtypes=_HALVES, max_width=256, block_m=32, block_n=16, mfma=16),
    Tuned(general=True, dtypes=_HALVES, max_width=512, block_m=16, block_n=16, mfma=16),
)

# RDNA3's WMMA takes A and B twice over, once per half of the wave: 8 registers for a 16x16 block of halves where
# RDNA4 needs 4. So few rows per wave (16 warps) and narrow steps; nothing here has been timed.
_GFX11: Table = (
    Tuned(few=True, features=0, dtypes=_HALVES, max_width=64, block_m=16, block_n=32, num_warps=8),
    Tuned(features=0, dtypes=_HALVES, max_width=64, block_m=64, block_n=32),
    Tuned(dtypes=_HALVES, features=1, max_width=64, block_m=64, block_n=32, num_warps=8),
    Tuned(dtypes=_HALVES, max_width=64, block_m=64, block_n=16, num_warps=8),
    Tuned(features=0, dtypes=_HALVES, max_width=128, block_m=64, block_n=32, hold=False, piece=64),
    Tuned(dtypes=_HALVES, max_width=128, block_m=64, block_n=16, hold=False, piece=64, num_warps=8),
    Tuned(dtypes=_HALVES, max_width=256, block_m=64, block_n=16, parts=2, hold=False, piece=64, num_warps=8),
    Tuned(dtypes=_HALVES, max_width=512, block_m=64, block_n=16, parts=4, hold=False, piece=64, num_warps=8),
    Tuned(max_width=64, block_m=32, block_n=16, num_warps=16),
    Tuned(max_width=256, block_m=32, block_n=16, parts=2, hold=False, piece=32, num_warps=8),
    Tuned(max_width=512, block_m=32, block_n=16, parts=4, hold=False, piece=32, num_warps=8),
    Tuned(general=True, dtypes=_HALVES, max_width=64, block_m=64, block_n=16, num_warps=8),
    Tuned(
        general=True,
        dtypes=_HALVES,
        max_width=256,
        block_m=64,
        block_n=16,
        parts=2,
        hold=False,
        piece=32,
        num_warps=8,
    ),
    Tuned(
        general=True,
        dtypes=_HALVES,
        max_width=512,
        block_m=64,
        block_n=16,
        parts=4,
        hold=False,
        piece=32,
        num_warps=8,
    ),
)

# No matrix instructions: a lane reads rows and columns of its tile from LDS, so operands in small pieces leave registers to
# larger tiles.
_GFX906: Table = (
    Tuned(features=0, dtypes=_HALVES, max_width=128, block_m=64, block_n=32, hold=False, piece=16),
    Tuned(max_width=128, block_m=32, block_n=32, hold=False, piece=16),
    Tuned(max_width=256, block_m=32, block_n=32, parts=2, hold=False, piece=16),
    Tuned(max_width=512, block_m=32, block_n=32, parts=4, hold=False, piece=16),
)

_BY_ARCH: Mapping[str, Table] = {"gfx906": _GFX906, "gfx908": _GFX908, "gfx11": _GFX11}
"""By the name of an arch or its beginning; at most one fits."""

_WIDE: Table = (
    Tuned(few=True, features=0, dtypes=_HALVES, max_width=128, block_m=16, block_n=32),
    Tuned(features=0, dtypes=_HALVES, max_width=128, block_m=64, block_n=32),
    Tuned(dtypes=_HALVES, max_width=64, block_m=64, block_n=32),
    Tuned(dtypes=_HALVES, max_width=256, block_m=64, block_n=16),
    Tuned(dtypes=_HALVES, max_width=512, block_m=32, block_n=16),
    Tuned(max_width=64, block_m=64, block_n=32),
    Tuned(max_width=128, block_m=32, block_n=16),
    Tuned(max_width=256, block_m=32, block_n=16),
    Tuned(max_width=512, block_m=16, block_n=16),
    Tuned(general=True, dtypes=_HALVES, max_width=64, block_m=64, block_n=32),
    Tuned(general=True, dtypes=_HALVES, max_width=128, block_m=64, block_n=16),
    Tuned(general=True, dtypes=_HALVES, max_width=256, block_m=32, block_n=16),
    Tuned(general=True, dtypes=_HALVES, max_width=512, block_m=16, block_n=16),
)
"""Wavefronts of 64 lanes: compiles without scratch for gfx90a and gfx942; nothing here has been timed."""

_NARROW: Table = (
    Tuned(few=True, features=0, dtypes=_HALVES, max_width=128, block_m=16, block_n=32, num_warps=8),
    Tuned(features=0, dtypes=_HALVES, max_width=128, block_m=64, block_n=32),
    Tuned(dtypes=_HALVES, max_width=128, block_m=64, block_n=16),
    Tuned(dtypes=_HALVES, max_width=256, block_m=64, block_n=16, parts=2, hold=False, piece=64, num_warps=8),
    Tuned(dtypes=_HALVES, max_width=512, block_m=64, block_n=16, parts=4, hold=False, piece=64, num_warps=8),
    Tuned(max_width=64, block_m=32, block_n=16, num_warps=16),
    Tuned(max_width=256, block_m=32, block_n=16, parts=2, hold=False, piece=32, num_warps=8),
    Tuned(max_width=512, block_m=32, block_n=16, parts=4, hold=False, piece=32, num_warps=8),
    Tuned(general=True, dtypes=_HALVES, max_width=64, block_m=64, block_n=16, num_warps=8),
    Tuned(
        general=True,
        dtypes=_HALVES,
        max_width=256,
        block_m=64,
        block_n=16,
        parts=2,
        hold=False,
        piece=32,
        num_warps=8,
    ),
    Tuned(
        general=True,
        dtypes=_HALVES,
        max_width=512,
        block_m=64,
        block_n=16,
        parts=4,
        hold=False,
        piece=32,
        num_warps=8,
    ),
)
"""Wavefronts of 32 lanes: twice the wavefronts for the same registers per lane; compiles without scratch for gfx12."""


def forward_settings(target: Target, functional: Functional) -> tuple[Setting, ...]:
    """The configurations of the forward kernel, in the order in which the runtime tries them; the last one serves every call."""
    general = _WIDE if target.warp_size == 64 else _NARROW
    table = next((table for name, table in _BY_ARCH.items() if target.arch.startswith(name)), general)
    fitting = [entry for entry in table if entry.fits(functional)]
    main = next((entry for entry in fitting if not entry.few and not entry.general), None)
    if main is None:
        return ()
    width = int(functional["width"])
    when: tuple[Condition, ...] = (Equals(value="head_dim", to=width), Equals(value="head_dim_v", to=width))
    if functional["mask"] == "bias":
        when = (*when, Equals(value="stride_bn", to=1))
    few = next((entry for entry in fitting if entry.few), None)
    unhinted = next((entry for entry in fitting if entry.general), main)
    return (
        *([few.setting(width, when, general=False)] if few else []),
        main.setting(width, when, general=False),
        unhinted.setting(width, (), general=True),
    )
