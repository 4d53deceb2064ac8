"""Times of calls on an NVIDIA GPU, in turn, so that the clock's changes concern all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

Call = Callable[[], object]
ROTATED = 200e6
"""Bytes that short calls read in turn: more than the L2 cache holds."""
REPLAYED = 20
"""Calls of a graph."""


def milliseconds(calls: Mapping[str, Call], *, rounds: int = 15, cold: bool = True) -> dict[str, float]:
    """Median times by events; `cold`: the L2 cache is written over before each call.

    The GPU waits first, so that a call is queued before its time begins: the host may take longer than it.
    """
    cache = torch.empty(1 << 26, dtype=torch.int32, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 2):
        events = {name: [torch.cuda.Event(enable_timing=True) for _ in range(2)] for name in calls}
        for name, call in calls.items():
            if cold:
                cache.zero_()
            torch.cuda._sleep(1 << 20)
            events[name][0].record()
            call()
            events[name][1].record()
        torch.cuda.synchronize()
        for name, (begin, end) in events.items():
            if number >= 2:
                times[name].append(begin.elapsed_time(end))
    return {name: sorted(measured)[rounds // 2] for name, measured in times.items()}


def sets_of(size: int) -> int:
    """How many sets of tensors of `size` bytes together exceed the cache."""
    return max(1, min(REPLAYED, round(ROTATED / size)))


def milliseconds_each(
    make: Callable[[], Mapping[str, Sequence[Call]]], *, rounds: int = 9
) -> dict[str, float]:
    """Median times of one of several calls in turn, replayed as a graph; `make` makes them on the stream of
    the capture."""
    stream = torch.cuda.Stream()
    # tensors of the current stream may still be written, and memory that they had before be read
    torch.cuda.synchronize()
    replays: dict[str, Call] = {}
    with torch.cuda.stream(stream):
        for name, calls in make().items():
            for call in calls:
                call()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                for number in range(REPLAYED):
                    calls[number % len(calls)]()
            replays[name] = graph.replay
    torch.cuda.synchronize()
    times = milliseconds(replays, rounds=rounds, cold=False)
    return {name: time / REPLAYED for name, time in times.items()}
