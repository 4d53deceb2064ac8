"""Values of the runtime room."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Tools:
    """The programs that build the library, as absolute paths. `compiler` is the C++ compiler's own description.

    `identity` names everything of this machine that the library's bytes can depend on: versions of the programs, SHA-256 of the
    static libstdc++ and of glibc.
    """

    cc: Path
    cxx: Path
    cmake: Path
    ninja: Path
    compiler: str
    identity: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class RuntimeBuild:
    """A built and checked runtime. `prefix` holds lib/, include/ and lib/cmake/aotriton/; `library` is the file that
    `soname` names, `sha256` its digest.

    `source_digest` covers the C++ sources (AOTRITON_GIT_SHA1 in config.h is its start), `inputs` everything that can change the
    library's bytes. `glibc` is the newest symbol version that it needs, e.g. "2.35". `fresh` is False when an
    earlier build had made exactly this.
    """

    prefix: Path
    library: Path
    soname: str
    sha256: str
    source_digest: str
    inputs: str
    compiler: str
    glibc: str
    fresh: bool
