"""Building dl for Windows: dl.dll, its import libraries, the static library and dlfcn.h."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.files import output_lock, staged_folder
from aotforge.errors import ToolchainError
from aotforge.library.build_linux import configure_and_build
from aotforge.library.build_tools import find_tools
from aotforge.library.dl_source import DlManifest, dl_source

TARGET = "x86_64-w64-mingw32"


@dataclass(frozen=True, kw_only=True)
class DlBuild:
    """lib/dl.dll, lib/dl.lib (linkers that target MSVC), lib/libdl.dll.a (GNU linkers), lib/libdl.a and include/dlfcn.h below
    `folder`; `digests` are their SHA-256 by path there. `source` names what they were built from."""

    folder: Path
    source: str
    digests: tuple[tuple[str, str], ...]


def cross_settings() -> dict[str, str]:
    """What tells cmake that a build is for Windows; the compilers are the caller's."""
    return {"CMAKE_SYSTEM_NAME": "Windows", "CMAKE_SYSTEM_PROCESSOR": "x86_64"}


def cross_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment with mingw-w64's compilers as CC and CXX, unless AOTFORGE_MINGW_CC and _CXX name others."""
    cc = environment.get("AOTFORGE_MINGW_CC") or f"{TARGET}-gcc-posix"
    cxx = environment.get("AOTFORGE_MINGW_CXX") or f"{TARGET}-g++-posix"
    return dict(environment) | {"CC": cc, "CXX": cxx}


def build_dl(
    root: Path,
    *,
    output: Path,
    cache: Path,
    environment: Mapping[str, str] | None = None,
    manifest: DlManifest | None = None,
) -> DlBuild:
    """Builds into `output`, which is replaced in one step; an earlier build there survives any failure.

    `manifest` instead of the repository's dl.yaml. Raises ToolchainError, RuntimeBuildError, ManifestError, OutputError.
    """
    env = cross_environment(os.environ if environment is None else environment)
    for variable in ("CC", "CXX"):
        if not shutil.which(env[variable], path=env.get("PATH", "")):
            raise ToolchainError(
                f"the compiler for Windows, {env[variable]}, is not there",
                hint="apt-get install g++-mingw-w64-x86-64-posix, or name others in AOTFORGE_MINGW_CC and AOTFORGE_MINGW_CXX",
            )
    tools = find_tools(env)
    with output_lock(output), tempfile.TemporaryDirectory(prefix="aotforge-dl-") as work:
        source = dl_source(
            root, cache=cache, folder=Path(work) / "original", environment=env, manifest=manifest
        )
        with staged_folder(output) as staged:
            configure_and_build(
                root / "runtime" / "dl", Path(work) / "objects", tools, cross_settings() | source.settings,
                environment=env, install=staged,
            )  # fmt: skip
            if source.original is not None and (source.original / _LICENCE).exists():
                target = staged / "licences" / "dlfcn-win32.txt"
                target.parent.mkdir()
                target.write_bytes((source.original / _LICENCE).read_bytes())
    files = sorted(path for path in output.rglob("*") if path.is_file())
    digests = tuple(
        (path.relative_to(output).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()) for path in files
    )
    return DlBuild(folder=output, source=source.name, digests=digests)


_LICENCE = "COPYING"
