"""What a build tells about while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from aotforge.plan.model import JobKey

EventKind = Literal["scanned", "compiled", "shared", "damaged", "retry", "failed", "spills"]


@dataclass(frozen=True, kw_only=True)
class CompileEvent:
    """Something happened to a job.

    `scanned`: the cache has been looked through (label ''); `compiled` here, `shared`: by another build; `damaged`: its cache
    entry, it is compiled again; `retry` and `failed`: `detail` says why; `spills`: `detail` says how much.
    `done` of `total` jobs are finished; `seconds` is the job's wall time, `peak_bytes` its worker's peak memory.
    """

    kind: EventKind
    key: JobKey
    label: str
    detail: str
    done: int
    total: int
    seconds: float = 0.0
    peak_bytes: int = 0


OnEvent = Callable[[CompileEvent], None]
