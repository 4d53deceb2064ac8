"""Settings of the forward kernel from `manifests/tuning/`; SETTINGS.md has the reasons.

A call whose tensors are aligned and whose heads have exactly the image's width takes an image with hints,
every other call the
general one: no hints, columns beyond head_dim masked. The first configuration of a table that fits a
functional is
taken; where none fits, the arch does not serve it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from aotforge.base.tuning import tuning
from aotforge.rules import Between, Condition, Equals, Functional, GeneralSetting, Setting, Target
from aotforge.timed_rules import TimedSetting

_NEAR = 2**23
"""Elements between rows whose offsets in a tile of 128 rows fit 32 bits."""
_GROUP_REGISTERS = {128: 168, 192: 128}
"""Of a thread by the queries of a block: two or three groups multiply 64 each, one copies."""


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A configuration for widths up to `max_width`, some dtypes and masks (all when empty), with at most
    `features` of bias and dropout.

    `block_n` counts keys; `parts` divide the columns of Out among programs, `piece` bounds those of a tile;
    without `hold` the queries are not kept in registers but read again, at most 64 columns at a time;
    `mfma` is the matrix instruction's height and width (0: the compiler's choice); `waves_per_eu` bounds the
    registers, `kpack` is how many steps of the matrix instruction one read of shared memory feeds.
    `few` is for calls of at most 16 queries and packs heads into a block, `general` for the general image
    alone, `hinted` for the one with
    hints alone.
    `archs`: those of the file that it is for (all when empty). `groups`: forward_warpgroups.py, for heads of
    exactly `max_width` and at least `least_q` queries: `first` columns in the first tile (0: all), registers
    of a thread that multiplies or copies.
    `ahead`: forward_mfma.py, for heads of exactly `max_width`: the generation of the matrix instructions (1:
    gfx908, 2: gfx90a, 3: gfx942).
    `spills`: hardware ran its images with spilled registers faster than every setting without.
    """

    max_width: int
    block_m: int
    block_n: int
    num_warps: int = 4
    num_stages: int = 1
    waves_per_eu: int = 0
    mfma: int = 0
    kpack: int = 1
    dtypes: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()
    parts: int = 1
    piece: int = 512
    hold: bool = True
    features: int = 2
    few: bool = False
    general: bool = False
    hinted: bool = False
    archs: tuple[str, ...] = ()
    groups: bool = False
    ahead: int = 0
    first: int = 0
    least_q: int = 0
    multiply_registers: int = 216
    copy_registers: int = 72
    spills: bool = False

    def fits(self, arch: str, functional: Functional) -> bool:
        """Whether this configuration is for the functional on this arch."""
        return (
            (not self.archs or arch in self.archs)
            and (int(functional["width"]) == self.max_width or not (self.groups or self.ahead))
            and int(functional["width"]) <= self.max_width
            and (not self.dtypes or functional["dtype"] in self.dtypes)
            and (not self.masks or functional["mask"] in self.masks)
            and bool(functional["dropout"]) + (functional["mask"] == "bias") <= self.features
        )

    def setting_of_groups(self, width: int, when: tuple[Condition, ...]) -> Setting:
        """The image of forward_warpgroups.py, which computes offsets of rows in a tile with 32 bits."""
        near = tuple(Between(value=f"stride_{name}", low=-_NEAR, high=_NEAR) for name in ("qm", "kn", "vn"))
        long = (Between(value="seqlen_q", low=self.least_q, high=2**31 - 1),) if self.least_q else ()
        return TimedSetting(
            source="forward_warpgroups.py",
            constants={
                "BLOCK_M": self.block_m,
                "BLOCK_N": self.block_n,
                "PART": width,
                "FIRST": self.first or width,
                "STAGES": self.num_stages,
                "MULTIPLY_REGISTERS": self.multiply_registers,
                "COPY_REGISTERS": self.copy_registers,
            },
            when=(*when, *long, Equals(value="varlen_bits", to=0), *near),
            unaligned=False,
            num_warps=self.num_warps,
            num_stages=self.num_stages,
            spills=self.spills,
            # what the groups of four warps have each before they divide the registers among themselves
            options={"enable_fp_fusion": False, "maxnreg": _GROUP_REGISTERS[self.block_m]},
        )

    def setting_ahead(self, width: int, when: tuple[Condition, ...]) -> Setting:
        """The image of forward_mfma.py, whose offsets in a tile are 31 bits of bytes without a sign."""
        near = tuple(Between(value=f"stride_{name}", low=0, high=_NEAR) for name in ("qm", "kn", "vn"))
        return TimedSetting(
            source="forward_mfma.py",
            constants={
                "BLOCK_M": self.block_m,
                "BLOCK_N": self.block_n,
                "PART": width,
                "VERSION": self.ahead,
            },
            when=(*when, Equals(value="varlen_bits", to=0), *near),
            unaligned=False,
            num_warps=self.num_warps,
            num_stages=self.num_stages,
            waves_per_eu=self.waves_per_eu,
            options={"enable_fp_fusion": False},
        )

    def setting(self, width: int, when: tuple[Condition, ...], *, general: bool) -> Setting:
        """The image with hints for calls for which `when` holds, or the general one."""
        step = 0 if self.hold else min(self.piece, 64, width & -width)
        columns = {"PART": width // self.parts, "PIECE": self.piece, "EXACT": not general, "STEP": step}
        few = (Between(value="seqlen_q", low=0, high=16),) if self.few else ()
        return TimedSetting(
            constants={"BLOCK_M": self.block_m, "BLOCK_N": self.block_n, **columns, "PACKED": self.few},
            when=(*when, *few),
            hinted=not general,
            unaligned=general,
            num_warps=self.num_warps,
            num_stages=self.num_stages,
            waves_per_eu=self.waves_per_eu,
            matrix_instr_nonkdim=self.mfma,
            kpack=self.kpack,
            # a product rounded in the maximum and not in the difference makes large scores overflow
            options={"enable_fp_fusion": False},
            spills=self.spills,
        )


@cache
def _table(arch: str, warp_size: int) -> tuple[Tuned, ...]:
    return tuning().rows("flash.attn_fwd", arch, warp_size, Tuned)


def forward_settings(target: Target, functional: Functional) -> tuple[Setting, ...]:
    """The configurations of the forward kernel, in the order in which the runtime tries them; the last one
    serves every call."""
    fitting = [
        entry for entry in _table(target.arch, target.warp_size) if entry.fits(target.arch, functional)
    ]
    own = [entry for entry in fitting if not (entry.few or entry.groups or entry.ahead)]
    main = next((entry for entry in own if not entry.general), None)
    served = [entry for entry in own if not entry.hinted]
    if main is None or not served:
        return ()
    width = int(functional["width"])
    when: tuple[Condition, ...] = (Equals(value="head_dim", to=width), Equals(value="head_dim_v", to=width))
    if functional["mask"] == "bias":
        when = (*when, Equals(value="stride_bn", to=1))
    few = next((entry for entry in fitting if entry.few), None)
    groups = next((entry for entry in fitting if entry.groups), None)
    ahead = next((entry for entry in fitting if entry.ahead), None)
    unhinted = next((entry for entry in served if entry.general), served[0])
    return (
        *([few.setting(width, when, general=False)] if few else []),
        *([groups.setting_of_groups(width, when)] if groups else []),
        *([ahead.setting_ahead(width, when)] if ahead else []),
        main.setting(width, when, general=False),
        unhinted.setting(width, (), general=True),
    )


@dataclass(frozen=True, kw_only=True)
class MaskTuned:
    """Queries and keys of a program of attn_dropout_mask."""

    block_m: int
    block_n: int
    num_warps: int = 4
    num_stages: int = 1


def dropout_mask_settings(target: Target, functional: Functional) -> tuple[Setting, ...]:
    """The first row of attn_dropout_mask: it writes element by element, so its image has no hints. Where
    there are general images, every profile
    keeps it, as PyTorch requests masks in any dtype.
    """
    rows = tuning().rows("flash.attn_dropout_mask", target.arch, target.warp_size, MaskTuned)
    general: tuple[object, ...] = tuning().rows("flash.attn_fwd_general", target.arch, target.warp_size, dict)
    kind = GeneralSetting if general else Setting
    return tuple(
        kind(
            constants={"BLOCK_M": row.block_m, "BLOCK_N": row.block_n},
            hinted=False,
            num_warps=row.num_warps,
            num_stages=row.num_stages,
        )
        for row in rows[:1]
    )
