"""Build of the library for Linux, once per set of inputs, into the cache."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from aotforge.library.build_tools import find_tools
from aotforge.library.elf_check import check_library
from aotforge.library.library_build import LibraryBuild, LibraryRequest, inputs_key
from aotforge.library.zstd_source import Download
from aotforge.sandbox.executors.step import ExecutionTarget


def build_runtime(
    root: Path,
    *,
    cache: Path,
    jobs: int | None = None,
    environment: Mapping[str, str] | None = None,
    download: Download | None = None,
    execution: ExecutionTarget | None = None,
) -> LibraryBuild:
    """The library of the sources in `root`/runtime, from the cache or built into it; see `LibraryRequest`.

    `environment` is the process' by default. Raises ToolchainError, RuntimeBuildError, ManifestError, CacheError; with `execution`
    LimitError and ExecutorError.
    """
    request = LibraryRequest(
        root=root,
        cache=cache,
        environment=dict(os.environ if environment is None else environment),
        jobs=jobs,
        download=download,
        execution=execution,
    )
    tools = find_tools(request.environment) if request.rootfs is None else None
    soname = request.manifest.soname

    def build(staged: Path) -> dict[str, str]:
        name = "runtime library"
        compiler = request.build(name, staged, tools=tools, folders={}, settings={}, compilers={})
        glibc = check_library(staged / "prefix" / "lib" / soname, soname)
        shutil.rmtree(staged / "work")
        return {"compiler": compiler, "glibc": glibc}

    inputs = inputs_key(
        manifest=request.manifest.model_dump(mode="json"),
        sources=request.sources,
        tools=request.identity(tools.identity if tools else ()),
    )
    return request.cached(f"lib/{soname}", inputs, build)
