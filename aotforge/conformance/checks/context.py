"""The input of every check of a release."""

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aotforge.conformance.candidate import Candidate
from aotforge.conformance.compilers import (
    Compilation,
    CompilationCache,
    Compiler,
    Hip,
    standin_hip,
)
from aotforge.conformance.matrix import Compatibility
from aotforge.library.build_linux import OPERATOR_LIBRARY
from aotforge.run.release_programs import ReleasePrograms


@dataclass(frozen=True, kw_only=True)
class CheckContext:
    """One run of the checks. `hip`: headers for PyTorch's calls; `programs` runs what loads the library.

    `development`: a library below its promised platform is reported, not refused. `cache` keeps compilations.
    """

    candidate: Candidate
    compat: Compatibility
    checkout: Path
    work: Path
    compilers: tuple[Compiler, ...]
    hip: Hip
    programs: ReleasePrograms
    cache: Path | None = None
    development: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def prefix(self) -> Path:
        """The unpacked runtime."""
        return self.candidate.prefix()

    @property
    def library(self) -> Path:
        """The library's file."""
        return self.prefix / "lib" / self.compat.names[0]

    @property
    def libraries(self) -> dict[str, Path]:
        """By SONAME: the library, and the operator library where the release has any part of it."""
        files, headers = self.prefix / "lib" / OPERATOR_LIBRARY, self.prefix / "include" / "aotforge"
        parts = (files, files.with_suffix(".a"), headers / "ops.h", files.parent / "cmake" / "aotforge_ops")
        found = {self.compat.names[0]: self.library}
        return found | ({OPERATOR_LIBRARY: files} if any(map(os.path.lexists, parts)) else {})

    @property
    def compilations(self) -> CompilationCache:
        """Compiler runs of these checks, with results of earlier ones."""
        return CompilationCache(work=self.work, cache=self.cache or self.work, programs=self.programs)

    def compile(
        self,
        compiler: Compiler,
        source: str,
        *,
        flags: Sequence[str],
        hip: Hip | None = None,
        link: bool = True,
    ) -> Compilation:
        """`source` with the headers of the release and of `hip` (default: the stand-in), and the library."""
        hip, headers = hip or standin_hip(self.checkout), self.prefix / "include"
        return self.compilations.compile(
            compiler,
            source,
            includes=[headers, *([hip.include] if hip.include else [])],
            inputs=[headers, hip.tree],
            flags=[*flags, *hip.flags],
            objects=[self.library] if link else [],
        )
