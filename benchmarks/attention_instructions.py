"""Instructions that attention executes on the virtual GPU with each feature, as ratios to the plain call of
the same work.

Counts are properties of the images, so other work on the machine does not change them.

    python -m benchmarks.attention_instructions [ARCH]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from aotforge.devtools.cost.candidates import CostRequest, find_candidates
from aotforge.devtools.cost.run_cost import Cost, cost, dispatched
from vgpu.cache import default_cache

ROOT = Path(__file__).parents[1]
SQUARE = {"seqlen_q": 512, "seqlen_k": 512}
BACKWARD = ("bwd_preprocess", "bwd_dk_dv", "bwd_dq")
FORMER = {
    ("attn_fwd", "full"): (205040, 382800),
    ("attn_fwd", "window"): (149912, 274368),
    ("bwd_preprocess", "full"): (15568, 31712),
    ("bwd_dk_dv", "full"): (323456, 1233664),
    ("bwd_dk_dv", "window"): (229304, 741360),
    ("bwd_dq", "full"): (247296, 601472),
    ("bwd_dq", "window"): (158208, 377744),
}
"""Plain calls on gfx908 before kernels had features (commit 3963cfc), at head_dim 64 and 128."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A feature: calls of `plain` have the same work, `limit` bounds the ratio."""

    name: str
    mask: str = "full"
    dropout: bool = False
    shape: dict[str, int]
    plain: dict[str, int]
    limit: float | None = None


WINDOW = {"seqlen_q": 2048, "seqlen_k": 2048, "window_left": 511, "window_right": 0}
PACKED = {"batch": 4, "seqlen_q": 256, "seqlen_k": 256}
SLIDING = Row(
    name="512 of 2048 keys in a sliding window",
    mask="window",
    shape=WINDOW,
    # 917,760 pairs are visible: the first queries see fewer than 512 keys
    plain={"seqlen_q": 2048, "seqlen_k": 448},
    limit=1.1,
)
FORWARD_ROWS = (
    Row(name="dropout", dropout=True, shape=SQUARE, plain=SQUARE, limit=1.35),
    Row(name="bias", mask="bias", shape=SQUARE, plain=SQUARE, limit=1.25),
    Row(name="bias and dropout", mask="bias", dropout=True, shape=SQUARE, plain=SQUARE),
    Row(
        name="window that shows every key",
        mask="window",
        shape={**SQUARE, "window_right": 512},
        plain=SQUARE,
        limit=1.1,
    ),
    SLIDING,
    Row(name="packed sequences", shape={**PACKED, "packed": 1}, plain=PACKED, limit=1.05),
)
BACKWARD_ROWS = (
    Row(name="dropout", dropout=True, shape=SQUARE, plain=SQUARE),
    Row(name="bias", mask="bias", shape=SQUARE, plain=SQUARE),
    Row(
        name="window that shows every key",
        mask="window",
        shape={**SQUARE, "window_right": 512},
        plain=SQUARE,
        limit=1.1,
    ),
    SLIDING,
    Row(name="packed sequences", shape={**PACKED, "packed": 1}, plain=PACKED, limit=1.05),
)
DECODE = {"heads_q": 8, "seqlen_q": 1, "seqlen_k": 1024}


def main() -> None:
    arch = sys.argv[1] if len(sys.argv) > 1 else "gfx908"
    print(f"Wave-instructions executed on {arch}, fp16; ratio to the plain call of the same work\n")
    print("| call | head_dim 64 | head_dim 128 | limit |")
    print("|---|---|---|---|")
    for kernels, rows in ((("attn_fwd",), FORWARD_ROWS), (BACKWARD, BACKWARD_ROWS)):
        side = "forward" if len(kernels) == 1 else "backward"
        for row in rows:
            print_row(
                f"{side}, {row.name}", [ratio(arch, kernels, row, width) for width in (64, 128)], row.limit
            )
    for kernel in ("attn_fwd", "bwd_dk_dv", "bwd_dq"):
        areas = [area_of_blocks(arch, kernel, width) for width in (64, 128)]
        print_row(f"{kernel}, sliding window: area of its blocks to the visible area", areas, None)
    if arch == "gfx908":
        for (kernel, mask), former in FORMER.items():
            now = [
                instructions(arch, kernel, width=width, mask=mask, dropout=False, shape=SQUARE)
                for width in (64, 128)
            ]
            text = f"{kernel}, {'causal' if mask == 'window' else 'plain'}, to its former kernel"
            print_row(text, [a / b for a, b in zip(now, former, strict=True)], 1.02)
    for name, value in (
        ("instructions", lambda c: c.work.instructions),
        ("bytes requested", requested),
    ):
        ratios = []
        for width in (64, 128):
            one_head, eight_heads = (
                measure(
                    arch, "attn_fwd", width=width, mask="full", dropout=False, shape={**DECODE, "heads_k": n}
                )
                for n in (1, 8)
            )
            ratios.append(value(one_head) / value(eight_heads))
        print_row(f"decode, 8 heads to one of K, {name}, to 8 of K", ratios, None)


def print_row(name: str, ratios: list[float], limit: float | None) -> None:
    cells = [f"{ratio:.3f}" for ratio in ratios]
    print(f"| {name} | {' | '.join(cells)} | {limit or '-'} |", flush=True)


def ratio(arch: str, kernels: tuple[str, ...], row: Row, width: int) -> float:
    """Instructions with the feature by those without, all kernels together."""

    def total(mask: str, dropout: bool, shape: dict[str, int]) -> int:
        return sum(
            instructions(arch, kernel, width=width, mask=mask, dropout=dropout, shape=shape)
            for kernel in kernels
        )

    return total(row.mask, row.dropout, row.shape) / total("full", False, row.plain)


def instructions(
    arch: str, kernel: str, *, width: int, mask: str, dropout: bool, shape: dict[str, int]
) -> int:
    """Wave-instructions of a launch."""
    return measure(arch, kernel, width=width, mask=mask, dropout=dropout, shape=shape).work.instructions


def measure(arch: str, kernel: str, *, width: int, mask: str, dropout: bool, shape: dict[str, int]) -> Cost:
    """One image's cost on a call."""
    return cost(request_of(arch, kernel, width=width, mask=mask, dropout=dropout, shape=shape))[0]


def request_of(
    arch: str, kernel: str, *, width: int, mask: str, dropout: bool, shape: dict[str, int]
) -> CostRequest:
    """A request for the image that the library chooses for a call."""
    keys = {"dtype": "fp16", "width": str(width)}
    if kernel == "bwd_preprocess":
        shape = {name: value for name, value in shape.items() if not name.startswith("window")}
    else:
        keys |= {"mask": mask, "dropout": str(dropout).lower()}
    return CostRequest(
        root=ROOT,
        cache=default_cache(),
        images=(kernel,),
        arch=arch,
        keys=keys,
        shape={name: str(value) for name, value in shape.items()},
    )


def area_of_blocks(arch: str, kernel: str, width: int) -> float:
    """Pairs of queries and keys in the blocks that the sliding window touches, to those that it shows: what
    no kernel with these blocks
    falls below."""
    request = request_of(arch, kernel, width=width, mask="window", dropout=False, shape=WINDOW)
    constants = dict(dispatched(request, find_candidates(request)[0]).job.constants)
    rows, columns = int(constants["BLOCK_M"]), int(constants["BLOCK_N"])
    n_q, n_k, left, right = WINDOW.values()
    visible = sum(max(min(q + right + 1, n_k) - max(q - left, 0), 0) for q in range(n_q))
    blocks = 0
    for first in range(0, n_q, rows):
        end = min(first + rows + right, n_k)
        blocks += -(-end // columns) - max(first - left, 0) // columns
    return blocks * rows * columns / visible


def requested(launch_cost: Cost) -> int:
    """Bytes that lanes request of global memory."""
    return launch_cost.work.traffic["global loads"].bytes


if __name__ == "__main__":
    main()
