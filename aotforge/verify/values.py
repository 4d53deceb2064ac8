"""Values of the verify room: what was found out about each image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from aotforge.plan.values import JobKey, PlannedChoice, PlannedKernel

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
    """Everything a process needs to judge one image. `folder` is the family's; `uses` is never empty."""

    key: JobKey
    label: str
    arch: str
    digest: str
    hsaco: bytes
    asm: str
    dynamic_lds_bytes: int
    folder: str
    uses: tuple[Use, ...]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of one image.

    `runs` counts launches (cases times wave schedules). `worst` is the largest error of any element in multiples of its
    bound, at most 1 in a passed image and infinite for not-a-number and unwritten elements; `worst_at` says in which
    case and output; `tile_scale` by how much a tile of an output is scaled as a whole at most. `instructions` are
    wave-instructions over all runs. `failure` says what went wrong, one line per case.
    """

    key: JobKey
    label: str
    digest: str
    outcome: Outcome
    cases: tuple[str, ...] = ()
    runs: int = 0
    worst: float = 0.0
    worst_at: str = ""
    tile_scale: float = 0.0
    instructions: int = 0
    seconds: float = 0.0
    failure: str = ""
    cached: bool = False


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
