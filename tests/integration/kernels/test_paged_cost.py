"""What attention over pages of a decoding step does on the virtual GPU, counted, beside the dense kernel."""

from __future__ import annotations

import pytest

from aotforge.devtools.cost.candidates import CostRequest
from aotforge.devtools.cost.run_cost import Cost, cost
from tests.support.families import PROJECT
from tests.support.runtime import CACHE

pytestmark = pytest.mark.compiler
ROW = 2 * 64
"""Bytes of a key, a value or a query."""
ARCHS = [
    "gfx908",
    *(pytest.param(arch, marks=pytest.mark.slow) for arch in ("gfx906", "gfx90a", "gfx1030", "gfx1100")),
]


def measured(kernel: str, arch: str, choices: dict[str, str], **shape: int) -> Cost:
    """Of float16, head_dim 64 and one head of keys."""
    sizes = {name: str(size) for name, size in {"batch": 1, "heads_k": 1, **shape}.items()}
    keys = {"dtype": "fp16", "width": "64", **choices}
    (made,) = cost(CostRequest(
        root=PROJECT, cache=CACHE, images=(kernel,), arch=arch, keys=keys, settings=(), shape=sizes,
    ))  # fmt: skip
    return made


def paged(arch: str, group: int, keys: int) -> Cost:
    return measured("paged_attn", arch, {"cache": "fp16"}, group=group, keys=keys)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_group_reads_its_keys_once_with_the_dense_kernel_s_instructions(arch: str) -> None:
    single, group, more = paged(arch, 1, 512), paged(arch, 8, 512), paged(arch, 8, 1024)
    assert group.resources.scratch_bytes == 0
    # memory touched: seven more queries, and no key or value again
    assert group.work.loaded - single.work.loaded == 7 * ROW
    # bytes that lanes request for 512 more keys and values, with the numbers of their pages
    requested = more.work.traffic["global loads"].bytes - group.work.traffic["global loads"].bytes
    rows = 2 * 512 * ROW
    assert rows < requested <= 1.25 * rows
    dense = measured(
        "attn_fwd", arch, {"mask": "full", "dropout": "False"}, heads_q=8, seqlen_q=1, seqlen_k=1024
    )
    assert more.work.instructions <= 1.1 * dense.work.instructions
