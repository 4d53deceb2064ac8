"""Calls of aotforge_flash over pages on a GPU: beside float64, captured as a graph, and the first one's time.

`python -m tests.device.paged LIBRARY [COUNT]`, with images of float16. Raises AssertionError.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch

import aotforge_flash
from tests.device.calls import show
from tests.integration.front_end.test_calls import check_random_calls_of_caches


def check_first_calls() -> None:
    """Milliseconds of the first calls, the first of which loads its images."""
    q, cache = torch.ones(1, 1, 8, 64).half(), torch.ones(4, 16, 2, 64).half()
    torch.cuda.synchronize()
    for name in ("first", "second"):
        begin = time.perf_counter()
        out = aotforge_flash.flash_attn_with_kvcache(q, cache, cache, cache_seqlens=9)
        torch.cuda.synchronize()
        show(f"{name} call: {1000 * (time.perf_counter() - begin):.2f} ms")
        assert torch.equal(out, q)


def check_capture() -> None:
    """A graph of decoding, with new keys, replayed with other queries, lengths and block table."""
    caches = [torch.randn(24, 16, 2, 64).half() for _ in range(2)]
    table, used = torch.zeros(3, 8, dtype=torch.int32), torch.zeros(3, dtype=torch.int32)
    q, k, v = (torch.zeros(3, 1, heads, 64).half() for heads in (8, 2, 2))

    def step(caches: list[Any]) -> Any:
        return aotforge_flash.flash_attn_with_kvcache(
            q, caches[0], caches[1], k, v, cache_seqlens=used, block_table=table, causal=True, num_splits=3
        )

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step(caches)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            out = step(caches)
    for number in range(3):
        torch.manual_seed(number)
        for x in (q, k, v, *caches):
            x.copy_(torch.randn_like(x))
        table.copy_(torch.randperm(24).view(3, 8))
        used.copy_(torch.tensor([0, 40 + number, 127]))
        copies = [cache.clone() for cache in caches]
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, step(copies))
        assert all(map(torch.equal, caches, copies))


def main(library: str, count: int) -> None:
    """Prints what was done."""
    aotforge_flash.load(library)
    torch.set_default_device("cuda")
    check_first_calls()
    check_capture()
    show("a captured graph gives the results of its calls")
    check_random_calls_of_caches(count)
    show(f"{torch.cuda.get_device_name()}: {count} random calls within their bounds")


if __name__ == "__main__":
    main(sys.argv[1], int((sys.argv[2:] or ["500"])[0]))
