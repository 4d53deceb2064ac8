"""What the demo found."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.flash.call import Case as Problem


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One output against float64: the largest absolute error, the largest value, and the error as a share of the rounding analysis' bound."""

    name: str
    largest_error: float
    largest_value: float
    of_bound: float


@dataclass(frozen=True, kw_only=True)
class Result:
    """One attention call, forward and backward, on one device. `preparing_seconds` is the share of the calls that went into
    finding, proving and binding images, which hardware does not need.

    `served`: (kernel, image digest, wave-instructions, seconds) of every launch.
    """

    arch: str
    problem: Problem
    outputs: tuple[Judged, ...]
    forward_seconds: float
    backward_seconds: float
    preparing_seconds: float
    served: tuple[tuple[str, str, int, float], ...]

    @property
    def passed(self) -> bool:
        """Whether every element of every output is within its bound."""
        return all(output.of_bound <= 1 for output in self.outputs)


@dataclass(frozen=True, kw_only=True)
class DemoReport:
    """What the demo did. `tarballs` are the release's files that it used."""

    release: str
    tarballs: tuple[str, ...]
    results: tuple[Result, ...]

    @property
    def passed(self) -> bool:
        """Whether all results are."""
        return all(result.passed for result in self.results)
