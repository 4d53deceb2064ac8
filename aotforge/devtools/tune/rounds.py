"""Rounds in which images take turns on a device, each between two times of a reference."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from aotforge.errors import ExecutionError
from aotforge.verify.device.messages import DeviceResult


@dataclass(frozen=True, kw_only=True)
class Timing:
    """A turn is the median of `launches`. A round in which the reference's two times differ by more than the
    share `drift` is repeated, as often as there are `rounds`; fewer than `least` good ones are no result.
    Launches of less than `milliseconds` are timed together."""

    rounds: int = 7
    launches: int = 10
    drift: float = 0.05
    least: int = 3
    milliseconds: float = 0.2


class Turn(Protocol):
    """An image, ready to be timed."""

    def milliseconds(self, shape: int, launches: int) -> tuple[float, ...] | DeviceResult:
        """Times of a call, or how its process ended."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """Medians by shape: of the reference before and after all others, and of these."""

    before: tuple[float, ...]
    after: tuple[float, ...]
    times: Mapping[str, tuple[float, ...]]

    @property
    def drift(self) -> float:
        """The largest share by which the reference's later time differs from its earlier one."""
        pairs = zip(self.before, self.after, strict=True)
        return max(max(pair) / min(pair) - 1 if min(pair) > 0 else float("inf") for pair in pairs)

    def reference(self, shape: int) -> float:
        """The mean of both."""
        return (self.before[shape] + self.after[shape]) / 2


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """Good rounds, and how many others there were."""

    good: tuple[Round, ...]
    discarded: int

    def milliseconds(self, key: str, shape: int) -> float:
        """The median over all rounds of an image's medians."""
        return statistics.median(one.times[key][shape] for one in self.good)

    def ratio(self, key: str, shape: int) -> float:
        """The same as a share of the reference's times, of each round by its own."""
        return statistics.median(one.times[key][shape] / one.reference(shape) for one in self.good)

    def reference(self, shape: int) -> float:
        """The reference's median."""
        return statistics.median(one.reference(shape) for one in self.good)


class EndedError(Exception):
    """The process of the image `key` ended with `result`; '' for the reference."""

    def __init__(self, key: str, result: DeviceResult) -> None:
        super().__init__(result.failure)
        self.key, self.result = key, result


def interleaved(reference: Turn, others: Mapping[str, Turn], shapes: int, timing: Timing) -> Rounds:
    """Times of all, in rounds.

    Raises EndedError for the first process that ends, and ExecutionError when the reference's times drift in
    too many rounds.
    """
    good: list[Round] = []
    discarded, worst = 0, 0.0
    while len(good) < timing.rounds and discarded < timing.rounds:
        before = _turn("", reference, shapes, timing)
        times = {key: _turn(key, other, shapes, timing) for key, other in others.items()}
        one = Round(before=before, after=_turn("", reference, shapes, timing), times=times)
        if one.drift > timing.drift:
            discarded, worst = discarded + 1, max(worst, one.drift)
        else:
            good.append(one)
    if len(good) < timing.least:
        raise ExecutionError(
            f"the GPU's clock drifts: in {discarded} of {discarded + len(good)} rounds by up to {worst:.0%}",
            cause="other work on the GPU, or a clock that follows load and temperature",
            hint="fix the clock (rocm-smi --setperfdeterminism, nvidia-smi -lgc), or allow more with --drift",
        )
    return Rounds(good=tuple(good), discarded=discarded)


def _turn(key: str, of: Turn, shapes: int, timing: Timing) -> tuple[float, ...]:
    """Medians by shape."""
    medians = []
    for shape in range(shapes):
        found = of.milliseconds(shape, timing.launches)
        if isinstance(found, DeviceResult):
            raise EndedError(key, found)
        medians.append(statistics.median(found))
    return tuple(medians)
