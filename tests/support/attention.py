"""Attention calls as data, and a pack whose kernels do nothing but take every operator value, so that the HIP
double shows them."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aotforge.rules import Operator
from kernels.flash.operators import ATTN_BWD, ATTN_DROPOUT_MASK, ATTN_FWD

from .fake_hsaco import FakeKernel, fake_hsaco
from .small_pack import Choice, Kernel, SmallPack

FP16, BF16, FP32 = 2, 3, 1
KEYS = ("dtype", "dropout", "mask", "width")
_FORMATS = {"ptr": "<Q", "i32": "<i", "i64": "<q", "u64": "<Q", "f32": "<f"}


@dataclass(frozen=True)
class Tensor:
    base: int
    sizes: Sequence[int]
    dtype: int
    strides: Sequence[int] | None = None

    def __str__(self) -> str:
        strides = self.strides if self.strides is not None else contiguous(self.sizes)
        return f"{self.base}:{','.join(map(str, self.sizes))}:{','.join(map(str, strides))}:{self.dtype}"


def contiguous(sizes: Sequence[int]) -> list[int]:
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.append(strides[-1] * max(size, 1))
    return strides[::-1]


@dataclass(frozen=True, kw_only=True)
class Problem:
    batch: int = 2
    heads_q: int = 4
    heads_k: int = 2
    seqlen_q: int = 48
    seqlen_k: int = 64
    head_dim: int = 64
    dtype: int = FP16
    extra: Mapping[str, Any] = field(default_factory=dict)

    def fields(self, backward: bool) -> dict[str, Any]:
        rows_q = (self.batch, self.heads_q, self.seqlen_q, self.head_dim)
        rows_k = (self.batch, self.heads_k, self.seqlen_k, self.head_dim)
        lse = (self.batch * self.heads_q, self.seqlen_q)
        base = itertools.count(0x100000, 0x10000)
        shapes: dict[str, tuple[Sequence[int], int]] = {"Q": (rows_q, self.dtype), "K": (rows_k, self.dtype)}
        shapes |= {"V": (rows_k, self.dtype), "Out": (rows_q, self.dtype), "L": (lse, FP32)}
        if backward:
            shapes |= {"DO": (rows_q, self.dtype), "DQ": (rows_q, self.dtype), "DK": (rows_k, self.dtype)}
            shapes |= {"DV": (rows_k, self.dtype), "D": (lse, FP32), "DQ_ACC": (rows_q, FP32)}
        made = {name: Tensor(next(base), sizes, dtype) for name, (sizes, dtype) in shapes.items()}
        return made | {"sm_scale": 0.125} | dict(self.extra)

    def line(self, verb: str) -> str:
        fields = self.fields(backward="bwd" in verb or verb in ("aiter", "v2fused"))
        return f"{verb} " + " ".join(f"{name}={value}" for name, value in fields.items() if value is not None)


def spy_pack(
    arch: str = "gfx908",
    *,
    widths: Sequence[int] = (64,),
    without: Sequence[str] = (),
    backward_without: Sequence[str] = ("DQ_ACC", "stride_dqaz", "stride_dqah", "stride_dqam"),
    options: Mapping[str, Sequence[int]] | None = None,
    mask_dtypes: Sequence[int] = (),
) -> SmallPack:
    """One kernel per operator with all of its values as parameters, but `without`. `options` are the key
    values served; `mask_dtypes`
    those of the dropout mask, which has no kernel without."""
    served: dict[str, Sequence[int]] = {
        "dtype": (FP16, BF16),
        "dropout": (0,),
        "mask": (0, 1),
        "width": widths,
    }
    served |= options or {}
    kernels = [
        _spy(ATTN_FWD, arch, served, without, "seqlen_q"),
        _spy(ATTN_BWD, arch, served, (*without, *backward_without), "seqlen_k"),
    ]
    served_operators = [ATTN_FWD, ATTN_BWD]
    if mask_dtypes:
        kernels.append(_spy(ATTN_DROPOUT_MASK, arch, {"dtype": mask_dtypes}, (), "seqlen_q"))
        served_operators.append(ATTN_DROPOUT_MASK)
    operators = {op.name: [(v.name, v.type) for v in op.values] for op in served_operators}
    return SmallPack(archs=[arch], operators=operators, kernels=kernels)


def _spy(
    op: Operator, arch: str, served: Mapping[str, Sequence[int]], without: Sequence[str], rows: str
) -> Kernel:
    values = [v for v in op.values if v.name not in without]
    keys = [key for key in KEYS if key not in without and key in served]
    image = fake_hsaco(
        arch, [FakeKernel(symbol=op.name, types=[*(v.type for v in values), "ptr", "ptr"], lds_bytes=1024)]
    )
    choice = Choice(
        image=image, symbol=op.name, lds=256, grid=(((rows, 32),), (("num_head_q", 1),), (("batch", 1),))
    )
    combinations = itertools.product(*(served[key] for key in keys))
    return Kernel(
        name=f"spy.{op.name}",
        operator=op.name,
        keys=keys,
        parameters=[(v.type, v.name) for v in values],
        nulls=2,
        functionals={(arch, combination): [choice] for combination in combinations},
    )


def decode(launch: Mapping[str, Any], op: Operator, without: Sequence[str] = ()) -> dict[str, Any]:
    """Operator values of a recorded launch of a spy kernel, by name."""
    if op is ATTN_BWD and not without:
        without = ("DQ_ACC", "stride_dqaz", "stride_dqah", "stride_dqam")
    values = [v for v in op.values if v.name not in without]
    raw = [bytes.fromhex(argument["bytes"]) for argument in launch["arguments"]]
    assert len(raw) == len(values) + 2 and raw[-2:] == [bytes(8)] * 2
    return {v.name: struct.unpack(_FORMATS[v.type], data)[0] for v, data in zip(values, raw, strict=False)}
