"""Attention beside AOTriton's kernels: instructions, longest pipe, estimate and matrix FLOPs, by ratios of an earlier comparison.

AOTriton's kernels are not here. reference_kernels.yaml has ratios to images of an earlier commit; the setting of that time is compiled again,
and ours / theirs is (image in force / image of that setting) x the ratio. It supposes that the kernels' sources cost the same as then.

    python -m benchmarks.reference_kernels [ARCH]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from aotforge.base.machine import default_cache
from aotforge.devtools.cost.candidates import CostRequest, compiled, find_candidates
from aotforge.devtools.cost.run_cost import Cost, dispatched, measured

ROOT = Path(__file__).parents[1]
DATA = Path(__file__).with_suffix(".yaml")
NAMES = ("BLOCK_M", "BLOCK_N", "num_warps", "num_stages", "matrix_instr_nonkdim", "waves_per_eu")
PRODUCTS = {"attn_fwd": 2, "bwd_dq": 3, "bwd_dk_dv": 4}
"""Matrix products of each kernel, of queries x keys x columns."""


def former(row: Mapping[str, Any]) -> dict[str, str]:
    """The setting of the earlier commit, whose programs held all columns of their block."""
    width = row["width"]
    parts = {"PIECE": 512, "STEP": 0} if row["kernel"] == "attn_fwd" else {"PIECE": width, "HOLD": 1}
    named = dict(zip(NAMES, row["former"], strict=True)) | {"kpack": 1, "PART": width} | parts
    return {name: str(value) for name, value in named.items()}


def needed(kernel: str, mask: str, width: int, length: int) -> int:
    """FLOPs that the mathematics needs for one head; a causal mask leaves the pairs on and below the diagonal."""
    pairs = length * length if mask == "full" else length * (length + 1) // 2
    return 2 * PRODUCTS[kernel] * pairs * width


def shape_of(row: Mapping[str, Any], shape: Mapping[str, int]) -> dict[str, str]:
    """The call, as `--shape` takes it."""
    window = {} if row["mask"] == "full" else {"window_left": shape["seqlen_k"], "window_right": 0}
    return {name: str(value) for name, value in {**shape, **window}.items()}


def totals(cost: Cost) -> dict[str, float]:
    """Of a launch, under the names of the file."""
    groups = cost.work.workgroups
    return {
        "instructions": cost.work.instructions,
        "pipe": groups * max(cost.estimate.pipes.values()),
        "estimate": groups * cost.estimate.workgroup,
    }


def ratios(row: Mapping[str, Any], now: Cost, then: Cost) -> dict[str, float]:
    """The image in force as a multiple of AOTriton's."""
    before = totals(then)
    return {name: value / before[name] * row[name] for name, value in totals(now).items()}


def main(only: str | None) -> None:
    """Prints a row of a table for each kernel."""
    data = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    print("| arch, kernel | instructions | longest pipe | estimate | FLOPs / needed: ours, theirs |")
    print("|---|---|---|---|---|")
    for row in data["kernels"]:
        if only in (None, row["arch"]):
            print(_row(row, data["shape"]), flush=True)


def _row(row: Mapping[str, Any], shape: Mapping[str, int]) -> str:
    request = CostRequest(
        root=ROOT,
        cache=default_cache(),
        images=(row["kernel"],),
        arch=row["arch"],
        keys={"dtype": "fp16", "mask": row["mask"], "width": str(row["width"])},
        shape=shape_of(row, shape),
        settings=({}, former(row)),
    )
    found = [dispatched(request, one) for one in find_candidates(request)]
    images = compiled(found, request)
    now, then = (measured(request, one, image) for one, image in zip(found, images, strict=True))
    shares = " | ".join(f"{value:.2f}" for value in ratios(row, now, then).values())
    flops = now.work.flops / needed(row["kernel"], row["mask"], row["width"], shape["seqlen_q"])
    name = f"{row['arch']} {row['kernel']} {row['width']} {'full' if row['mask'] == 'full' else 'causal'}"
    return f"| {name} | {shares} | {flops:.2f}, {row['flops']:.2f} |"


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
