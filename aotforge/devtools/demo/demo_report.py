"""Report of the demo: attention calls on virtual devices compared with float64."""

from dataclasses import asdict, dataclass
from typing import Any

from aotforge.errors import VerifyError
from aotforge.verify.report import finite
from kernels.flash.call import Case as Problem


@dataclass(frozen=True, kw_only=True)
class OutputResult:
    """One output: the largest absolute error, the largest value, and the error over its bound (rounding
    analysis)."""

    name: str
    largest_error: float
    largest_value: float
    of_bound: float


@dataclass(frozen=True, kw_only=True)
class CallResult:
    """One attention call, forward and backward, on one device.

    `preparing_seconds` is the time of finding, verifying and binding images, which hardware does not need.
    `served`: (kernel, image digest, wave-instructions, seconds) of every launch.
    """

    arch: str
    problem: Problem
    outputs: tuple[OutputResult, ...]
    forward_seconds: float
    backward_seconds: float
    preparing_seconds: float
    served: tuple[tuple[str, str, int, float], ...]

    @property
    def passed(self) -> bool:
        """Every element of every output is within its bound."""
        return all(output.of_bound <= 1 for output in self.outputs)

    def lines(self) -> list[str]:
        """For people."""
        p = self.problem
        mask = "full" if p.window_right is None else "causal"
        return [
            f"virtual {self.arch}: {mask} attention, {p.dtype}, batch {p.batch}, "
            f"heads {p.heads_q}/{p.heads_k}, "
            f"{p.seqlen_q} queries, {p.seqlen_k} keys, head_dim {p.head_dim}: "
            f"forward {self.forward_seconds:.2f} s, backward {self.backward_seconds:.2f} s "
            f"({self.preparing_seconds:.2f} s of it preparing images)",
            f"  {'output':8} {'max error':>10} {'max value':>10} {'of bound':>9}",
            *(
                f"  {o.name:8} {o.largest_error:10.2e} {o.largest_value:10.2e} {o.of_bound:9.3f}"
                for o in self.outputs
            ),
            *(
                f"  {kernel:16} image {digest[:12]}  {instructions:>10} wave-instructions  {seconds:.2f} s"
                for kernel, digest, instructions, seconds in self.served
            ),
        ]


@dataclass(frozen=True, kw_only=True)
class DemoReport:
    """All calls. `tarballs` are the release's files that were used."""

    release: str
    tarballs: tuple[str, ...]
    results: tuple[CallResult, ...]

    @property
    def passed(self) -> bool:
        """All results passed."""
        return all(result.passed for result in self.results)

    def fields(self) -> dict[str, Any]:
        """For JSON; None for an error that is not finite."""
        fields = asdict(self) | {"passed": self.passed}
        for shown, result in zip(fields["results"], self.results, strict=True):
            shown["passed"] = result.passed
            shown["problem"].pop("layout")
        return finite(fields)  # type: ignore[no-any-return]

    def lines(self) -> list[str]:
        """A table per call."""
        wrong = "AN OUTPUT IS WRONG: see above"
        end = "every output is within the bounds of its rounding" if self.passed else wrong
        calls = [line for result in self.results for line in ("", *result.lines())]
        return [f"release {self.release}: {', '.join(self.tarballs)}", *calls, "", end]

    def require_passed(self) -> None:
        """Raises VerifyError when an output is outside of its bound."""
        wrong = [
            f"{result.arch} {output.name} ({output.of_bound:.3g} times its bound)"
            for result in self.results
            for output in result.outputs
            if output.of_bound > 1
        ]
        if wrong:
            raise VerifyError(
                f"the release computes something else than attention: {', '.join(wrong)}",
                cause="an image, the library or the virtual GPU is wrong",
                hint="./dev verify, for the same arch and profile, checks every image alone",
            )
