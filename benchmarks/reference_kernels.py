"""Cost of attention as a share of what AOTriton's kernels cost, by the cost model: both executed on the
virtual GPU.

AOTriton's kernels are not here: reference_kernels.yaml has their numbers. They are of the model whose digest
is there.

    python -m benchmarks.reference_kernels [ARCH]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from aotforge.base.source_groups import files_digest
from aotforge.devtools.cost.candidates import CostRequest
from aotforge.devtools.cost.run_cost import Cost, cost
from vgpu.cache import default_cache

ROOT = Path(__file__).parents[1]
DATA = Path(__file__).with_suffix(".yaml")
_COST = ("model", "rates", "run_cost", "simd", "steps", "timeline", "work")
MODEL = (
    *(f"aotforge/devtools/cost/{name}.py" for name in _COST),
    "aotforge/targets/amd/backend.py",
    *(f"vgpu/emulator/{name}.py" for name in ("classes", "effects", "measure")),
    "manifests/architectures.yaml",
)
"""Sources that decide the estimate of an executed image and its longest pipe."""
PRODUCTS = {"attn_fwd": 2, "bwd_dk_dv": 4, "bwd_dq": 3}
"""Matrix products of each kernel, of queries x keys x columns."""


def model_digest() -> str:
    """Of the cost model's sources."""
    return files_digest({name: ROOT / name for name in MODEL})[:12]


def needed(kernel: str, mask: str, width: int, length: int) -> int:
    """FLOPs that the mathematics needs for one head; a causal mask leaves the pairs on and below the
    diagonal."""
    pairs = length * length if mask == "full" else length * (length + 1) // 2
    return 2 * PRODUCTS[kernel] * pairs * width


def ratios(row: Mapping[str, Any], ours: Cost) -> tuple[float, float]:
    """Estimate and longest pipe of all workgroups on full units, as multiples of AOTriton's."""
    groups = ours.work.workgroups
    pipe = max(ours.estimate.pipes.values())
    return groups * ours.estimate.workgroup / row["estimate"], groups * pipe / row["pipe"]


def main(only: str | None) -> None:
    """Prints a row of a table for each kernel."""
    data = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    if (now := model_digest()) != data["model"]:
        print(
            f"Not comparable: AOTriton's kernels are by model {data['model']}, ours by {now}; measure them "
            "again.\n"
        )
    print("| arch, kernel | estimate | longest pipe | FLOPs / needed: ours, theirs | scratch: ours, theirs |")
    print("|---|---|---|---|---|")
    for row in data["kernels"]:
        if only in (None, row["arch"]):
            print(_row(row, data["shape"]), flush=True)


def _row(row: Mapping[str, Any], shape: Mapping[str, int]) -> str:
    kernel, mask, width = row["kernel"], row["mask"], row["width"]
    request = CostRequest(
        root=ROOT,
        cache=default_cache(),
        images=(kernel,),
        arch=row["arch"],
        keys={"dtype": "fp16", "mask": mask, "width": str(width)},
        shape={name: str(value) for name, value in shape.items()},
    )
    (ours,) = cost(request)
    shares = " | ".join(f"{value:.2f}" for value in ratios(row, ours))
    flops = ours.work.flops / needed(kernel, mask, width, shape["seqlen_q"])
    name = f"{row['arch']} {kernel} {width} {'full' if mask == 'full' else 'causal'}"
    scratch = f"{ours.resources.scratch_bytes}, {row['scratch_bytes']}"
    return f"| {name} | {shares} | {flops:.2f}, {row['flops']:.2f} | {scratch} |"


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
