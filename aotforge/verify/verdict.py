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
"""`unverified`: no case is dispatched to the image, or nothing here executes its arch."""
Faithfulness = Literal["exact", "approximated", "hardware", "unsupported", "not executed"]
"""How close an execution is to hardware's: see `Verdict.approximated`."""
UNREACHED = "no case is dispatched to this image"


@dataclass(frozen=True, kw_only=True)
class ImageTask:
    """What checking an image needs. `folder`: the family's; `source` adds source lines to faults."""

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
    """The largest errors of an output, as `compare` names them; `at`: the case of `tensor`."""

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

    `runs` counts launches, `faults` those that the virtual GPU stopped. `instructions` are wave-instructions,
    `mix` by class. `printed`: the first of `texts` texts of `tl.device_print`. `approximated`: instructions
    whose last bits may differ from hardware's, with the reason. `unsupported`: the virtual GPU lacks it.
    `device`: the GPU that executed, '' for the virtual one; `skipped`: a requested one is missing.
    `seconds` and `cached` are about this run, all else about the image.
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
