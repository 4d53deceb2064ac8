"""Build of dl for Windows: dl.dll, its import libraries, the static library and dlfcn.h."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.files import output_lock, staged_folder
from aotforge.library.build_tools import find_tools
from aotforge.library.cmake_build import configure_and_build
from aotforge.library.library_build import file_digests
from aotforge.library.mingw import cross_environment
from aotforge.library.sources import DlManifest, dl_source

_WINDOWS = {"CMAKE_SYSTEM_NAME": "Windows", "CMAKE_SYSTEM_PROCESSOR": "x86_64"}


@dataclass(frozen=True, kw_only=True)
class DlBuild:
    """lib/dl.dll, lib/dl.lib (linkers that target MSVC), lib/libdl.dll.a (GNU linkers), lib/libdl.a and include/dlfcn.h below
    `folder`; `digests` are their SHA-256 by path there. `source` names the sources."""

    folder: Path
    source: str
    digests: tuple[tuple[str, str], ...]


def build_dl(
    root: Path,
    *,
    output: Path,
    cache: Path,
    environment: Mapping[str, str] | None = None,
    manifest: DlManifest | None = None,
) -> DlBuild:
    """Builds into `output`, which is replaced in one step; an earlier build there survives any failure.

    `manifest` replaces the repository's dl.yaml. Raises ToolchainError, RuntimeBuildError, ManifestError, OutputError.
    """
    env = cross_environment(os.environ if environment is None else environment)
    tools = find_tools(env)
    with output_lock(output), tempfile.TemporaryDirectory(prefix="aotforge-dl-") as work:
        original = Path(work) / "original"
        source = dl_source(root, cache=cache, folder=original, environment=env, manifest=manifest)
        with staged_folder(output) as staged:
            configure_and_build(
                root / "runtime" / "dl",
                Path(work) / "objects",
                tools,
                _WINDOWS | {"AOTFORGE_DL_ORIGINAL": str(source.original or "")},
                environment=env,
                install=staged,
            )
            if (licence := original / "COPYING").exists():
                target = staged / "licences" / "dlfcn-win32.txt"
                target.parent.mkdir()
                target.write_bytes(licence.read_bytes())
    return DlBuild(folder=output, source=source.name, digests=tuple(file_digests(output).items()))
