"""Settings of the backward kernels from `manifests/tuning/`; SETTINGS.md has the reasons.

Usually two images serve a functional: one with hints for aligned calls of exactly its width whose L and D
(and bias) are dense by rows, and
the general one. The first configuration of a table that fits is taken; where none fits, the arch does not
serve the
functional.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from aotforge.base.tuning import tuning
from aotforge.rules import Condition, Equals, Functional, Setting, Target
from aotforge.timed_rules import TimedSetting

WIDTHS = (16, 32, 48, 64, 80, 96, 128, 160, 192, 224, 256, 512)
"""Widths of heads with images; a call takes the smallest one at or above the larger of its head_dim and head_dim_v."""


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A configuration for widths up to `max_width`, and for some dtypes and masks (all when empty).

    `parts` programs make the columns of a block's results, in pieces of at most `piece`; one holds the
    block's own tiles in registers,
    several read them again for each step. `mfma` is the matrix instruction's height and width (0: the
    compiler's choice).
    `plain`: without bias and dropout only; `exact`: with an image with hints, which spills where loops of a
    constant length are unrolled;
    `general`: for the image without hints only, where that spills; `hinted`: for the one with hints only.
    `kpack`: how many steps of the
    matrix instruction one read of shared memory feeds. `archs`: those of the file that it is for (all when
    empty).
    `spills`: hardware ran its images with spilled registers faster than every setting without.
    `single`: backward_single.py, whose programs make dK or dV, for heads of exactly `max_width`; those that make
    dV take `value_m` queries at a time in `value_stages`.
    `registers`: how many a thread may have on archs of sm_90.yaml (0: the assembler chooses, and may spill to
    have fewer than fit).
    """

    max_width: int
    block_m: int
    block_n: int
    num_warps: int = 4
    num_stages: int = 1
    waves_per_eu: int = 0
    mfma: int = 0
    kpack: int = 1
    parts: int = 1
    hold: bool = True
    piece: int = 128
    dtypes: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()
    plain: bool = False
    exact: bool = True
    general: bool = False
    hinted: bool = False
    archs: tuple[str, ...] = ()
    spills: bool = False
    registers: int = 0
    single: bool = False
    value_m: int = 0
    value_stages: int = 0

    def fits(self, arch: str, functional: Functional) -> bool:
        """Whether this configuration is for the functional on this arch."""
        plain = functional.get("mask") != "bias" and not functional.get("dropout")
        return (
            (not self.archs or arch in self.archs)
            and int(functional["width"]) <= self.max_width
            and (int(functional["width"]) == self.max_width or not self.single)
            and (not self.dtypes or functional["dtype"] in self.dtypes)
            and (not self.masks or functional.get("mask") in self.masks)
            and (plain or not (self.plain or self.single))
        )

    def setting_of_one_result(self, width: int, when: tuple[Condition, ...]) -> Setting:
        """The image of backward_single.py."""
        return TimedSetting(
            source="backward_single.py",
            constants={
                "BLOCK_M": self.block_m,
                "VALUE_M": self.value_m,
                "BLOCK_N": self.block_n,
                "PART": width // 2,  # two programs for a block of keys
                "PIECE": min(self.piece, 1 << width.bit_length() - 1),
                "STAGES": self.num_stages,
                "VALUE_STAGES": self.value_stages,
            },
            when=(*when, Equals(value="varlen_bits", to=0)),
            unaligned=False,
            num_warps=self.num_warps,
            num_stages=self.num_stages,
            spills=self.spills,
        )

    def setting(
        self, kernel: str, width: int, when: tuple[Condition, ...], *, exact: bool, apart: bool
    ) -> Setting:
        """The image with hints for calls for which `when` holds, or the general one; `apart`: see APART."""
        part = width // self.parts
        piece = min(self.piece, 1 << part.bit_length() - 1)
        constants: dict[str, int | str | bool] = {"EXACT": exact, "BLOCK_M": self.block_m, "PIECE": piece}
        if kernel != "bwd_preprocess":
            constants |= {"BLOCK_N": self.block_n, "PART": part, "HOLD": self.hold}
        if kernel == "bwd_dk_dv":
            constants["APART"] = apart
        return TimedSetting(
            constants=constants,
            when=when,
            hinted=exact,
            unaligned=not exact,
            num_warps=self.num_warps,
            num_stages=self.num_stages,
            waves_per_eu=self.waves_per_eu,
            matrix_instr_nonkdim=self.mfma,
            kpack=self.kpack,
            spills=self.spills,
            options={"maxnreg": self.registers} if self.registers else {},
        )


APART = "flash.apart"
"""A trait: fp32 images add the products of a block of queries to each other before they add them to dV: one sum over 2048 queries errs six
times as much, more than PyTorch's tests allow. Where an arch lacks it, it has not been tried, or the registers do not suffice."""

UNROLLED = "flash.unrolled"
"""A trait: fp32 images with hints would spill where a program does not hold its block, up to head_dim 256: there loops over columns have a
constant length, and the compiler unrolls them."""


@cache
def _table(kernel: str, arch: str, warp_size: int) -> tuple[Tuned, ...]:
    return tuning().rows(f"flash.{kernel}", arch, warp_size, Tuned)


def backward_settings(kernel: str, target: Target, functional: Functional) -> tuple[Setting, ...]:
    """The configurations of one backward kernel, in the order in which the runtime tries them; the last one
    serves every call."""
    table = _table(kernel, target.arch, target.warp_size)
    fitting = [entry for entry in table if entry.fits(target.arch, functional)]
    found = next((entry for entry in fitting if not (entry.general or entry.single)), None)
    single = next((entry for entry in fitting if entry.single), None)
    others = [entry for entry in fitting if not (entry.hinted or entry.single)]
    if found is None or not others:
        return ()
    general = next((entry for entry in others if entry.general), others[0])
    width = int(functional["width"])
    wanted = {"head_dim_v": width, "stride_dm": 1}
    if kernel != "bwd_preprocess":
        wanted |= {"head_dim": width, "stride_lm": 1}
    if functional.get("mask") == "bias":
        wanted["stride_bn"] = 1
    when = tuple(Equals(value=name, to=number) for name, number in wanted.items())
    traits = tuning().of(target.arch, target.warp_size)[1].traits
    apart = APART in traits and functional["dtype"] == "fp32"
    unrolled = functional["dtype"] == "fp32" and 64 < width <= 256 and not found.hold
    exact = found.exact and not (unrolled and UNROLLED in traits)
    return (
        *([single.setting_of_one_result(width, when)] if single else []),
        *([found.setting(kernel, width, when, exact=True, apart=apart)] if exact else []),
        general.setting(kernel, width, (), exact=False, apart=apart),
    )
