"""Values of verification: one image with its uses in, one verdict out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from aotforge.compile.model import Resources
from aotforge.plan.model import JobKey
from aotforge.verify.interpreter.dispatch import Use
from vgpu.emulator.decoded import SourceMap

Outcome = Literal["passed", "failed", "unverified"]
"""`unverified`: no case is dispatched to the image, or its family has none, or nothing here executes its
arch."""
Faithfulness = Literal["exact", "approximated", "hardware", "unsupported", "not executed"]
"""How close an execution is to hardware's: see `Verdict.approximated`."""
UNREACHED = "no case is dispatched to this image"


@dataclass(frozen=True, kw_only=True)
class ImageTask:
    """Everything a process needs to check one image. `folder` is the family's; `uses` is never empty.

    `verifier_digest` as in Verdict; `source` adds source lines to reports of faults.
    """

    key: JobKey
    label: str
    arch: str
    digest: str
    binary: bytes
    asm: str
    resources: Resources
    folder: str
    verifier_digest: str
    uses: tuple[Use, ...]
    source: SourceMap | None = None


@dataclass(frozen=True, kw_only=True)
class OutputStats:
    """Errors of one output of a kernel, the largest over all launches.

    `tensor`, `element` and `tile` are those of the verdict rule (`compare`): at most 1 in a passed image,
    infinite for not-a-number and unwritten elements. `error` and `allowed` are the absolute values behind
    `tensor`, in the case `at`.
    """

    name: str
    tensor: float
    element: float
    tile: float
    error: float
    allowed: float
    at: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Result of one image.

    `verifier_digest` covers the emulator, this package and the family's cases. `runs` counts launches (cases
    times wave schedules). `instructions` are wave-instructions over all of them, `mix` the same by class.
    `failure` describes the errors; `faults` counts launches that the virtual GPU stopped.
    `printed` are the first texts of `tl.device_print` with case, program and lane, of `texts` in all.
    `approximated` are executed instructions whose results may differ from hardware's in the last bits, with
    the reason.
    `unsupported`: nothing failed but that the virtual GPU lacks what the image uses. `device` is the GPU that
    executed the image, '' for the virtual GPU; `skipped`: a device was requested, and this machine has none
    of the arch. `seconds` and `cached` are about this run, everything else about the image.
    """

    key: JobKey
    label: str
    digest: str
    outcome: Outcome
    resources: Resources
    verifier_digest: str
    cases: tuple[str, ...] = ()
    runs: int = 0
    outputs: tuple[OutputStats, ...] = ()
    instructions: int = 0
    mix: tuple[tuple[str, int], ...] = ()
    failure: str = ""
    faults: int = 0
    approximated: tuple[tuple[str, str], ...] = ()
    printed: tuple[str, ...] = ()
    texts: int = 0
    unsupported: bool = False
    device: str = ""
    skipped: bool = False
    seconds: float = 0.0
    cached: bool = False

    @classmethod
    def failed(cls, task: ImageTask, failure: str) -> Verdict:
        """The verdict on an image of which only `failure` is known."""
        return cls(
            key=task.key,
            label=task.label,
            digest=task.digest,
            outcome="failed",
            resources=task.resources,
            verifier_digest=task.verifier_digest,
            failure=failure,
        )

    @classmethod
    def not_executed(cls, task: ImageTask, reason: str, *, skipped: bool = False) -> Verdict:
        """The verdict on an image that nothing here executes."""
        return replace(cls.failed(task, f"not executed: {reason}"), outcome="unverified", skipped=skipped)

    @property
    def faithfulness(self) -> Faithfulness:
        """Whether the executions are hardware's to the last bit, as far as the virtual GPU models it."""
        if self.unsupported:
            return "unsupported"
        if not self.runs:
            return "not executed"
        if self.device:
            return "hardware"
        return "approximated" if self.approximated else "exact"

    @property
    def worst(self) -> float:
        """The largest ratio of all outputs: the share of what is allowed that was needed."""
        return max((max(one.tensor, one.element, one.tile) for one in self.outputs), default=0.0)


@dataclass(frozen=True, kw_only=True)
class VerifyEvent:
    """The verdict on an image is known: `done` of `total`."""

    verdict: Verdict
    done: int
    total: int


OnEvent = Callable[[VerifyEvent], None]
