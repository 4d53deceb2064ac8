"""Rank that the cost model gives, among settings of our kernels, to those that AMD measured as the fastest
for its own kernels.

Their kernels are not these: the nearest check of the model's ranking that needs no GPU. cost_anchors.yaml has
the settings and their source.

    python -m benchmarks.cost_anchors [ARCH]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from aotforge.devtools.cost.candidates import (
    Candidate,
    CostRequest,
    compile_together,
    compiled,
    find_candidates,
)
from aotforge.devtools.cost.run_cost import Cost, measured
from aotforge.errors import CompileError, ResourceError
from vgpu.cache import default_cache

ROOT = Path(__file__).parents[1]
DATA = Path(__file__).with_suffix(".yaml")
NAMES = ("BLOCK_M", "BLOCK_N", "num_warps", "waves_per_eu")


def settings(data: Mapping[str, Any], kernel: str) -> tuple[dict[str, str], ...]:
    """The 40 settings of a kernel, as `--setting` takes them."""
    rows = product(data["tiles"][kernel], (2, 4), (1, 2, 3, 4))
    return tuple(_setting([*tile, warps, waves]) for tile, warps, waves in rows)


def _setting(values: list[int]) -> dict[str, str]:
    named = dict(zip(NAMES, map(str, values), strict=True))
    return {**named, "num_stages": "1", "matrix_instr_nonkdim": "16"}


def ranked(costs: Mapping[int, float], best: int) -> tuple[int, float]:
    """The rank of a setting (the cheapest is 1, equal ones share theirs), and its cost as a multiple of the
    least."""
    own = costs[best]
    return 1 + sum(other < own for other in costs.values()), own / min(costs.values())


def main(only: str | None) -> None:
    """Prints a row of a table for each anchor."""
    data = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    print(
        "| arch, kernel, best (M, N, warps, waves) | rank, excess by estimate | by longest pipe | without "
        "scratch | scratch |"
    )
    print("|---|---|---|---|---|")
    for anchor in data["anchors"]:
        if only in (None, anchor["arch"]):
            print(_row(data, anchor), flush=True)


def _row(data: Mapping[str, Any], anchor: Mapping[str, Any]) -> str:
    every = settings(data, anchor["kernel"])
    request = CostRequest(
        root=ROOT,
        cache=default_cache(),
        images=(anchor["kernel"],),
        arch=anchor["arch"],
        keys={"dtype": "fp16", "mask": "full", "width": str(anchor["width"])},
        shape={name: str(value) for name, value in data["shape"].items()},
        settings=every,
    )
    candidates = find_candidates(request)
    compile_together(candidates, request)
    made = {number: _cost(request, candidate) for number, candidate in enumerate(candidates)}
    costs = {number: cost for number, cost in made.items() if cost}
    best = every.index(_setting(list(anchor["best"])))
    estimates = {number: cost.work.workgroups * cost.estimate.workgroup for number, cost in costs.items()}
    pipes = {
        number: cost.work.workgroups * max(cost.estimate.pipes.values()) for number, cost in costs.items()
    }
    clean = {n: v for n, v in estimates.items() if n == best or not costs[n].resources.scratch_bytes}
    cells = [
        f"{rank} of {len(of)}, {excess:.2f}"
        for of in (estimates, pipes, clean)
        for rank, excess in [ranked(of, best)]
    ]
    name = f"{anchor['arch']} {anchor['kernel']} {anchor['width']}: {', '.join(map(str, anchor['best']))}"
    return f"| {name} | {' | '.join(cells)} | {costs[best].resources.scratch_bytes} |"


def _cost(request: CostRequest, candidate: Candidate) -> Cost | None:
    try:
        (image,) = compiled([candidate], request)
    except (CompileError, ResourceError):
        return None
    return measured(request, candidate, image)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
