"""Attention on AMD archs by the cost model, every image executed on the virtual GPU: one row per arch and
width.

    python -m benchmarks.amd_attention [ARCH,...] [WIDTH,...] [KERNEL]

`peak`: share of the matrix peak on full units. FLOPs of matrix instructions, and bytes that lanes request of
global memory, over what the mathematics needs. `waves`: per SIMD. `conflicts`: cycles of LDS banks over those
without conflicts. `AOTriton`: estimate as a multiple of its kernel's (reference_kernels.yaml).
"""

from __future__ import annotations

import sys
from typing import Any

import yaml

from aotforge.devtools.cost.candidates import CostRequest
from aotforge.devtools.cost.run_cost import Cost, cost
from aotforge.errors import AotforgeError
from benchmarks.reference_kernels import DATA, ROOT, needed, ratios
from vgpu.cache import default_cache

ARCHS = ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")
WIDTHS = (32, 64, 96, 128, 192, 256, 512)
TENSORS = {"attn_fwd": 4, "bwd_dk_dv": 6, "bwd_dq": 5}
"""Tensors of queries or keys x columns that each kernel reads or writes."""
LENGTH = 1024


def main(archs: tuple[str, ...], widths: tuple[int, ...], kernel: str) -> None:
    """Prints the rows of a table."""
    reference = yaml.safe_load(DATA.read_text(encoding="utf-8"))["kernels"]
    print(f"{kernel}, fp16, no mask, {LENGTH} queries and keys, one head\n")
    print("| arch, head_dim | decided by | peak | FLOPs | bytes | waves | conflicts | AOTriton |")
    print("|---|---|---|---|---|---|---|---|")
    for arch in archs:
        for width in widths:
            same = {"arch": arch, "kernel": kernel, "width": width, "mask": "full"}
            row = next((known for known in reference if same.items() <= known.items()), None)
            print(f"| {arch}, {width} | {' | '.join(_cells(arch, kernel, width, row))} |", flush=True)


def _cells(arch: str, kernel: str, width: int, row: dict[str, Any] | None) -> list[str]:
    """Of one image, or why there is none."""
    request = CostRequest(
        root=ROOT,
        cache=default_cache(),
        images=(kernel,),
        arch=arch,
        keys={"dtype": "fp16", "mask": "full", "width": str(width)},
        shape={"seqlen_q": str(LENGTH), "seqlen_k": str(LENGTH), "heads_q": "1", "heads_k": "1"},
    )
    try:
        (image_cost,) = cost(request)
    except AotforgeError as error:
        return [str(error).partition("\n")[0], *["-"] * 6]
    return [*_own_cells(image_cost, kernel, width), f"{ratios(row, image_cost)[0]:.2f}" if row else "-"]


def _own_cells(image_cost: Cost, kernel: str, width: int) -> list[str]:
    work, estimate = image_cost.work, image_cost.estimate
    moved = sum(traffic.bytes for name, traffic in work.traffic.items() if name.startswith("global"))
    flops = work.flops / needed(kernel, "full", width, LENGTH)
    accesses = [traffic for name, traffic in work.traffic.items() if name.startswith("LDS")]
    phases = sum(traffic.phases for traffic in accesses)
    conflicts = sum(traffic.cycles for traffic in accesses) / phases if phases else 0.0
    return [
        estimate.bound,
        f"{estimate.utilization:.0%}" if work.flops else "-",
        f"{flops:.2f}" if work.flops else "-",
        f"{moved / (TENSORS[kernel] * LENGTH * width * 2):.1f}",
        f"{image_cost.resources.occupancy}",
        f"{conflicts:.2f}" if phases else "-",
    ]


if __name__ == "__main__":
    given = [argument.split(",") for argument in sys.argv[1:]]
    main(
        tuple(given[0]) if given else ARCHS,
        tuple(int(width) for width in given[1]) if len(given) > 1 else WIDTHS,
        given[2][0] if len(given) > 2 else "attn_fwd",
    )
