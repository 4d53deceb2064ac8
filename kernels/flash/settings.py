"""Tuned configurations of the attention kernels, per arch, as data; SETTINGS.md has the measurements.

A table maps a kernel to its configurations: those that fit the functional are offered in order, up to the
first without `max_seqlen_q`; where none fits, the arch does not serve the functional. Archs without a table of
their own get the one of their wavefront's width: small tiles, meant to be replaced by tuned ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aotforge.rules import Between, Condition, Equals, Functional, Setting, Target


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A configuration for some functionals. `head_dims` empty means every one; `max_seqlen_q` limits it to
    short queries; `mfma` is the matrix instruction's height and width (0: the compiler's choice);
    `waves_per_eu` bounds its registers.
    """

    block_m: int
    block_n: int = 0
    num_warps: int = 4
    num_stages: int = 1
    waves_per_eu: int = 0
    mfma: int = 0
    head_dims: tuple[int, ...] = ()
    dtypes: tuple[str, ...] = ()
    max_seqlen_q: int | None = None

    def fits(self, functional: Functional) -> bool:
        """Whether the functional's head_dim and dtype are among those this entry is for."""
        return (not self.head_dims or functional["width"] in self.head_dims) and (
            not self.dtypes or functional["dtype"] in self.dtypes
        )

    def setting(self, width: int) -> Setting:
        """As the rules' vocabulary has it; a block size of 0 is one that the kernel does not have."""
        blocks = {"BLOCK_M": self.block_m, "BLOCK_N": self.block_n}
        when: tuple[Condition, ...] = (
            Equals(value="head_dim", to=width),
            Equals(value="head_dim_v", to=width),
        )
        if self.max_seqlen_q is not None:
            when = (*when, Between(value="seqlen_q", low=0, high=self.max_seqlen_q))
        return Setting(
            constants={name: size for name, size in blocks.items() if size},
            when=when,
            # few queries are waited for, not computed: an unaligned call takes the large blocks' image
            unaligned=self.max_seqlen_q is None,
            num_warps=self.num_warps,
            num_stages=self.num_stages,
            waves_per_eu=self.waves_per_eu,
            matrix_instr_nonkdim=self.mfma,
        )


Table = Mapping[str, tuple[Tuned, ...]]

# MI100: 256 VGPRs and 256 AGPRs per lane and SIMD, so at most 128 VGPRs let two waves share a SIMD and hide
# each other's loads; 64 KiB of LDS per CU, so at most 32 KiB a workgroup. MFMA 16x16 needs fewer registers
# than 32x32 at the same rate.
_GFX908: Table = {
    "attn_fwd": (
        # one block of keys in flight while another is multiplied: a few queries over many keys wait for
        # memory only
        Tuned(block_m=16, block_n=64, num_stages=2, max_seqlen_q=16, head_dims=(32, 64)),
        Tuned(block_m=16, block_n=32, num_stages=2, max_seqlen_q=16, head_dims=(128,)),
        Tuned(block_m=128, block_n=32, num_stages=2, mfma=32, waves_per_eu=2, head_dims=(32,)),
        Tuned(
            block_m=128, block_n=32, num_stages=2, mfma=32, waves_per_eu=2, head_dims=(64,), dtypes=("fp16",)
        ),
        Tuned(block_m=128, block_n=32, num_stages=2, mfma=16, waves_per_eu=2, head_dims=(64,)),
        Tuned(block_m=128, block_n=64, mfma=16, num_warps=8, dtypes=("fp16",)),
        Tuned(block_m=128, block_n=32, num_stages=2, mfma=16, num_warps=8),
    ),
}

# RDNA3's WMMA takes A and B twice over, once per half of the wave: 8 registers for a 16x16 block of halves where
# RDNA4 needs 4. So few rows per wave (16 warps) and narrow steps; nothing here has been timed. Of head_dim 128 only the
# forward fits: a wave of the backward would hold two operands of 64 registers each beside its sums, and every tile that
# was tried spills 91 registers or more. It is not offered, so the library refuses that call.
_GFX11: Table = {
    "attn_fwd": (
        Tuned(block_m=16, block_n=32, num_warps=8, max_seqlen_q=16, head_dims=(32, 64)),
        Tuned(block_m=64, block_n=32, num_warps=8, head_dims=(32, 64)),
        Tuned(block_m=64, block_n=16, num_warps=16),
    ),
}

_BY_ARCH: Mapping[str, Table] = {"gfx908": _GFX908, "gfx11": _GFX11}
"""By the name of an arch or its beginning; at most one fits."""

_WIDE: Table = {
    "attn_fwd": (Tuned(block_m=16, block_n=32, max_seqlen_q=16), Tuned(block_m=64, block_n=32)),
}
"""Wavefronts of 64 lanes: compiles without scratch for gfx90a and gfx942; nothing here has been timed."""

_NARROW: Table = {
    "attn_fwd": (
        Tuned(block_m=16, block_n=32, num_warps=8, max_seqlen_q=16),
        Tuned(block_m=64, block_n=32, num_warps=8),
    ),
}
"""Wavefronts of 32 lanes: twice the wavefronts for the same registers per lane; compiles without scratch for gfx12."""


def settings_for(kernel: str, target: Target, functional: Functional) -> tuple[Setting, ...]:
    """The configurations of one kernel, in the order in which the runtime tries them; the last one serves
    every call.
    """
    general = _WIDE if target.wavefront == 64 else _NARROW
    table = next((table for name, table in _BY_ARCH.items() if target.arch.startswith(name)), general)
    offered: list[Setting] = []
    for entry in table[kernel]:
        if entry.fits(functional):
            offered.append(entry.setting(int(functional["width"])))
            if entry.max_seqlen_q is None:
                break
    return tuple(offered)
