"""Values of the verify room: what was found out about each image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from aotforge.compile.model import Resources
from aotforge.plan.model import JobKey, PlannedChoice, PlannedKernel
from aotforge.virtual_gpu.emulator.decoded import SourceMap

Outcome = Literal["passed", "failed", "unverified"]
"""`unverified`: no case leads to the image, or its family has none."""


@dataclass(frozen=True, kw_only=True)
class Use:
    """One way in which a plan dispatches to an image: the choice at `index` of a functional."""

    kernel: PlannedKernel
    key: tuple[int, ...]
    choices: tuple[PlannedChoice, ...]
    index: int


@dataclass(frozen=True, kw_only=True)
class ImageTask:
    """Everything a process needs to judge one image. `folder` is the family's; `uses` is never empty; `tools` as in Verdict; `source`
    lets reports of faults name source lines.
    """

    key: JobKey
    label: str
    arch: str
    digest: str
    hsaco: bytes
    asm: str
    resources: Resources
    folder: str
    verifier_digest: str
    uses: tuple[Use, ...]
    source: SourceMap | None = None


@dataclass(frozen=True, kw_only=True)
class OutputStats:
    """How right one output of a kernel is, over all launches; the first three by the verdict rule (`compare`), at most 1 in a
    passed image and infinite for not-a-number and unwritten elements.

    `peer`: largest error by what the same computation in the same precision allows; `error` and `allowed` are those two in the case
    `at`. `element`: worst element by its bound. `tile`: worst tile by how much it may be scaled.
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
    """What became of one image.

    `tools` is the digest of everything that judges (emulator, this room, the family's cases). `runs` counts launches (cases times
    wave schedules); `instructions` are wave-instructions over all of them, `mix` the same by class. `failure` says what went wrong;
    `faults` counts launches that the virtual GPU stopped. `seconds` and `cached` are about this run, everything else about the image.
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
    seconds: float = 0.0
    cached: bool = False

    @property
    def worst(self) -> float:
        """The largest of all figures of all outputs: how much of what is allowed was needed."""
        return max((max(one.tensor, one.element, one.tile) for one in self.outputs), default=0.0)


@dataclass(frozen=True, kw_only=True)
class VerifyReport:
    """Verdicts in the plan's order of jobs."""

    pack: str
    archs: tuple[str, ...]
    profile: str
    verdicts: tuple[Verdict, ...]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class VerifyEvent:
    """An image has been judged: `done` of `total`."""

    verdict: Verdict
    done: int
    total: int


OnEvent = Callable[[VerifyEvent], None]
