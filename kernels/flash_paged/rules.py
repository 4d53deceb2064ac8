"""Attention over a paged cache: which calls are served, by which kernels.

Covered: queries and results in fp16 and bf16, a cache of their type, int8, fp8 e4m3 or fp8 e5m2, head_dim 64,
128 and, where a row has it, 256, any page size, group, lengths, causal or not, a left window, a soft cap,
sinks. Everything but types and head_dim is a run-time value, so that few images serve all calls. Tensors are
aligned to 16 bytes: there are no images for others, and the library refuses such calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from aotforge.base.tuning import tuning
from aotforge.rules import (
    Argument,
    Between,
    Choice,
    Condition,
    Family,
    Functional,
    Kernel,
    Scalar,
    Setting,
    Target,
    Term,
    dtypes,
)
from aotforge.timed_rules import TimedSetting

from .operators import PAGED_ATTN, RESHAPE_AND_CACHE

_FEW = 16
"""Rows of the smallest matrix instruction: calls of at most as many rows take an image of their own."""
_DTYPE = Choice(name="dtype", key="dtype", options=dtypes("fp16", "bf16"))
_CACHE = Choice(name="cache", key="cache", options=dtypes("fp16", "bf16", "i8", "fp8e4nv", "fp8e5"))
_WIDTH = Choice(name="width", key="head_dim", options={64: 64, 128: 128, 256: 256})


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A configuration for head_dim up to `max_width`, some dtypes, matrix units and archs (all when empty).

    `few`: for calls of at most 16 rows. `same`: for caches of the queries' type alone, whose elements need no
    registers for their conversion. `step`: columns of Q K^T at a time (0: all, with Q in registers). `spills`:
    hardware ran its images with spilled registers faster than every setting without.
    """

    max_width: int
    block_m: int
    block_n: int
    num_warps: int = 4
    num_stages: int = 1
    waves_per_eu: int = 0
    mfma: int = 0
    few: bool = False
    same: bool = False
    step: int = 0
    dtypes: tuple[str, ...] = ()
    matrix: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    spills: bool = False

    def fits(self, target: Target, functional: Functional) -> bool:
        """Whether the row is for the target and the functional."""
        width = int(functional["width"])
        return (
            width <= self.max_width
            and (not self.dtypes or functional["dtype"] in self.dtypes)
            and not (self.same and _is_scaled(functional))
            and (not self.matrix or target.matrix in self.matrix)
            and (not self.archs or target.arch in self.archs)
        )

    def setting(self) -> Setting:
        """As the plan takes it."""
        when: tuple[Condition, ...] = (Between(value="rows", high=_FEW),) if self.few else ()
        return TimedSetting(
            constants={"BLOCK_M": self.block_m, "BLOCK_N": self.block_n, "STEP": self.step},
            when=when,
            unaligned=False,
            num_warps=self.num_warps,
            num_stages=self.num_stages,
            waves_per_eu=self.waves_per_eu,
            matrix_instr_nonkdim=self.mfma,
            spills=self.spills,
        )


def _tile_bytes(functional: Functional, setting: Setting) -> int:
    """What lanes exchange: the tile of Q once; those of K and V one after the other, or both of as many steps as
    the pipeline holds, where a step loads page numbers and the next one K and V from there. Images of gfx906,
    gfx908 and gfx1100 need as much or, for the weights, up to a quarter more.
    """
    rows, keys = (int(setting.constants[name]) for name in ("BLOCK_M", "BLOCK_N"))
    width, stages = int(functional["width"]), setting.num_stages
    queries = 0 if setting.constants["STEP"] else 2 * width * rows
    tile = width * keys * (1 if _is_scaled(functional) else 2)
    return max(queries, tile if stages == 1 else 2 * tile * max((stages - 1) // 2, 1))


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the kernels that combine splits and write into pages, for some archs (all when empty) and
    head_dim up to `max_width`.
    """

    max_width: int = 256
    block: int = 0
    num_warps: int = 1
    num_stages: int = 1
    archs: tuple[str, ...] = ()


@cache
def _table(arch: str, warp_size: int) -> tuple[Tuned, ...]:
    return tuning().rows("flash_paged.paged_attn", arch, warp_size, Tuned)


def attention_settings(target: Target, functional: Functional) -> tuple[Setting, ...]:
    """The first row for few rows, unless it equals the first one for any number; none where none
    fits.
    """
    fitting = [row for row in _table(target.arch, target.warp_size) if row.fits(target, functional)]
    many = next((row for row in fitting if not row.few), None)
    if many is None:
        return ()
    few = next((row for row in fitting if row.few), None)
    if few is None or replace(few, few=False, same=many.same) == many:
        return (many.setting(),)
    return (few.setting(), many.setting())


def _row_settings(kernel: str, constant: str = "") -> Callable[[Target, Functional], tuple[Setting, ...]]:
    """The first row of the arch, of a kernel without tiles of Q, K and V; `constant` is its block's name."""

    def settings(target: Target, functional: Functional) -> tuple[Setting, ...]:
        rows = tuning().rows(f"flash_paged.{kernel}", target.arch, target.warp_size, Row)
        first = [row for row in rows if not row.archs or target.arch in row.archs][:1]
        return tuple(
            Setting(
                constants={constant: row.block} if constant else {},
                unaligned=False,
                num_warps=row.num_warps,
                num_stages=row.num_stages,
            )
            for row in first
            if int(functional["width"]) <= row.max_width
        )

    return settings


def _is_scaled(functional: Functional) -> bool:
    return functional["cache"] != functional["dtype"]


def _allowed(functional: Functional) -> bool:
    """Caches of 16 bits have the type of the queries."""
    return functional["cache"] not in ("fp16", "bf16") or not _is_scaled(functional)


def _constants(functional: Functional) -> Mapping[str, Scalar]:
    return {"WIDTH": functional["width"], "SCALED": _is_scaled(functional)}


def _tensors(names: str, kind: str) -> tuple[Argument, ...]:
    return tuple(Argument(name=n, type=f"*{kind}", value=n, divisible_by=16) for n in names.split())


def _vectors(names: str, kind: str = "fp32") -> tuple[Argument, ...]:
    """Read element by element: no alignment is required."""
    return tuple(Argument(name=n, type=f"*{kind}", value=n) for n in names.split())


def _strides(names: str, *, divisible_by: int | None = 8) -> tuple[Argument, ...]:
    """In elements; of a cache of 8 bits 16 of them are 16 bytes."""
    return tuple(
        Argument(name=f"stride_{n}", type="i64", value=f"stride_{n}", divisible_by=divisible_by)
        for n in names.split()
    )


def _scalars(names: str, kind: str = "i32") -> tuple[Argument, ...]:
    return tuple(Argument(name=n, type=kind, value=n) for n in names.split())


_PAGES = _strides("kp kn kh vp vn vh", divisible_by=16)

FAMILY = Family(
    name="flash_paged",
    operators=(PAGED_ATTN, RESHAPE_AND_CACHE),
    kernels=(
        Kernel(
            name="paged_attn",
            source="paged.py",
            function="paged_attn",
            operator="paged_attn",
            choices=(_DTYPE, _CACHE, _WIDTH),
            allowed=_allowed,
            arguments=(
                *_tensors("Q", "{dtype}"),
                *_tensors("K V", "{cache}"),
                *_tensors("Out", "{dtype}"),
                *_vectors("L"),
                *_tensors("O_part", "fp32"),
                *_vectors("L_part sinks k_scale v_scale"),
                *_vectors("block_table cu_seqlens_q seqused_k", "i32"),
                *_strides("qm qh"),
                *_PAGES,
                *_strides("om oh"),
                *_strides("lm lh table scale", divisible_by=None),
                *_scalars("num_head_q num_head_k group page_size num_splits split_keys"),
                *_scalars("causal window_left head_dim"),
                *_scalars("sm_scale softcap", "fp32"),
            ),
            constants=_constants,
            settings=attention_settings,
            shared_bytes=_tile_bytes,
            grid=(
                (Term(value="rows", divisor="BLOCK_M"),),
                (Term(value="num_head_k"), Term(value="num_splits")),
                (Term(value="batch"),),
            ),
        ),
        Kernel(
            name="paged_combine",
            source="paged.py",
            function="paged_combine",
            operator="paged_attn",
            step=1,
            choices=(_DTYPE, _WIDTH),
            arguments=(
                *_tensors("O_part", "fp32"),
                *_vectors("L_part sinks"),
                *_tensors("Out", "{dtype}"),
                *_vectors("L"),
                *_strides("om oh"),
                *_strides("lm lh", divisible_by=None),
                *_scalars("num_head_q num_splits"),
            ),
            constants=lambda functional: {"WIDTH": functional["width"]},
            settings=_row_settings("paged_combine", "BLOCK_S"),
            grid=((Term(value="rows_combined"),),),
        ),
        Kernel(
            name="reshape_and_cache",
            source="paged.py",
            function="reshape_and_cache",
            operator="reshape_and_cache",
            choices=(_DTYPE, _CACHE, _WIDTH),
            allowed=_allowed,
            arguments=(
                *_tensors("K_new V_new", "{dtype}"),
                *_tensors("K V", "{cache}"),
                *_vectors("k_scale v_scale"),
                *_vectors("slots", "i64"),
                *_strides("nm nh wm wh"),
                *_PAGES,
                *_strides("scale", divisible_by=None),
                *_scalars("page_size"),
            ),
            constants=_constants,
            settings=_row_settings("reshape_and_cache"),
            grid=((Term(value="tokens"),), (Term(value="num_head_k"),)),
        ),
    ),
)
