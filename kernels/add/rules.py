"""Elementwise addition: the smallest complete family: a folder, and a row of manifests/tuning."""

from __future__ import annotations

from dataclasses import dataclass

from aotforge.base.tuning import tuning
from aotforge.rules import Argument, Choice, Family, Functional, Kernel, Setting, Target, Term, dtypes

from .operators import ADD


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """`lane_bytes` of a tensor for each of `lanes` (0: those of the warps)."""

    lane_bytes: int
    lanes: int = 0
    num_warps: int = 4
    num_stages: int = 1

    def setting(self, target: Target, element_bytes: int) -> Setting:
        """As the plan takes it."""
        lanes = self.lanes or self.num_warps * target.warp_size
        block = lanes * self.lane_bytes // element_bytes
        return Setting(constants={"BLOCK": block}, num_warps=self.num_warps, num_stages=self.num_stages)


def _settings(target: Target, functional: Functional) -> tuple[Setting, ...]:
    rows = tuning().rows("add.add", target.arch, target.warp_size, Tuned)
    return tuple(row.setting(target, 4 if functional["dtype"] == "fp32" else 2) for row in rows[:1])


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
