"""The input of every check of a release."""

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aotforge.conformance.candidate import Candidate
from aotforge.conformance.compilers import Compilation, Compiler, Hip, compile_program, standin_hip
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
    def upstream(self) -> bool:
        """The release is AMD's own AOTriton."""
        return self.candidate.release.contents.upstream

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
        libraries = {self.compat.names[0]: self.library}
        return libraries | ({OPERATOR_LIBRARY: files} if any(map(os.path.lexists, parts)) else {})

    def compile(
        self,
        compiler: Compiler,
        source: str,
        *,
        flags: Sequence[str],
        hip: Hip | None = None,
        link: bool = True,
        files: Mapping[str, str] | None = None,
    ) -> Compilation:
        """`source` with the headers of the release and of `hip` (default: the stand-in) and the library, or
        with `files` alone."""
        hip, headers = hip or standin_hip(self.checkout), self.prefix / "include"
        alone = files is not None
        if self.upstream:  # HIP is not there, neither to link with nor to load
            flags = [*flags, "-Wl,--as-needed,--allow-shlib-undefined"]
        return compile_program(
            compiler,
            source,
            self.programs,
            work=self.work,
            cache=self.cache or self.work,
            includes=[] if alone else [headers, *([hip.include] if hip.include else [])],
            headers=[] if alone else [headers, hip.tree],
            flags=flags if alone else [*flags, *hip.flags],
            objects=[] if alone or not link else [self.library],
            files=files or {},
        )
