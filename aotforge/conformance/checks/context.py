"""What every check gets, and how checks are put together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aotforge.conformance.candidate import Candidate
from aotforge.conformance.compilers import CompilationCache, Compiler, Hip
from aotforge.conformance.findings import Finding
from aotforge.conformance.matrix import Compatibility


@dataclass(frozen=True, kw_only=True)
class CheckContext:
    """One run of the checks. `prefix` is the unpacked runtime, `headers` the digest of its include folder, `hip` HIP's headers for
    PyTorch's calls, `standin` declarations of the checkout; `development`: a library below its promised platform is reported, not refused.
    """

    candidate: Candidate
    compat: Compatibility
    checkout: Path
    work: Path
    cache: Path | None
    prefix: Path
    headers: str
    compilers: tuple[Compiler, ...]
    missing: tuple[str, ...]
    hip: Hip
    standin: Hip
    compilations: CompilationCache
    development: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def library(self) -> Path:
        """The library's file."""
        return self.prefix / "lib" / self.compat.names[0]


@dataclass(frozen=True, kw_only=True)
class Group:
    """A check in parts that may run at the same time, and what makes findings of the parts' results (in their order)."""

    name: str
    parts: Sequence[Callable[[], Any]]
    finish: Callable[[list[Any]], list[Finding]]


def single(name: str, check: Callable[[], list[Finding]]) -> Group:
    """A check in one part."""
    return Group(name=name, parts=[check], finish=lambda results: list(results[0]))
