"""Elementwise addition: the smallest complete family: a folder and nothing else."""

from __future__ import annotations

from aotforge.rules import Argument, Choice, Family, Functional, Kernel, Setting, Target, Term, dtypes

from .operators import ADD


def _settings(target: Target, functional: Functional) -> tuple[Setting, ...]:
    # 16 bytes per lane and tensor; four waves keep a SIMD each busy on every arch, and a processor has no lanes
    elements = 4 if functional["dtype"] == "fp32" else 8
    lanes = 256 if target.vendor == "cpu" else 4 * target.warp_size
    return (Setting(constants={"BLOCK": lanes * elements}, num_warps=4, num_stages=1),)


FAMILY = Family(
    name="add",
    operators=(ADD,),
    kernels=(
        Kernel(
            name="add",
            source="add.py",
            function="add",
            operator="add",
            choices=(Choice(name="dtype", key="dtype", options=dtypes("fp16", "bf16", "fp32")),),
            arguments=(
                Argument(name="x", type="*{dtype}", value="x", divisible_by=16),
                Argument(name="y", type="*{dtype}", value="y", divisible_by=16),
                Argument(name="out", type="*{dtype}", value="out", divisible_by=16),
                Argument(name="n", type="i64", value="n", divisible_by=8),
            ),
            settings=_settings,
            grid=((Term(value="n", divisor="BLOCK"),),),
        ),
    ),
)
