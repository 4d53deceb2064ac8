"""Build of the library for Windows x86-64 with mingw-w64, once per set of inputs, into the cache."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from aotforge.errors import RuntimeBuildError
from aotforge.formats.pe import (
    DYNAMIC_BASE,
    HIGH_ENTROPY,
    NX_COMPATIBLE,
    characteristics,
    imports,
    link_time,
)
from aotforge.formats.pe import exports as read_exports
from aotforge.library.cmake_build import WORK
from aotforge.library.exports import EXPORTS
from aotforge.library.library_build import LibraryBuild, LibraryRequest, inputs_key
from aotforge.library.mingw import INSTALL, TARGET, find_windows_tools
from aotforge.library.sources import DlSource, Download, dl_source
from aotforge.sandbox.executors.step import ExecutionTarget

LIBRARY = "lib/aotriton_v2.dll"
ALLOWED_IMPORTS = frozenset({"KERNEL32.DLL", "MSVCRT.DLL"})
"""Libraries of every Windows. HIP is not one of them: it is looked up at run time."""


def build_windows_runtime(
    root: Path,
    *,
    cache: Path,
    jobs: int | None = None,
    environment: Mapping[str, str] | None = None,
    download: Download | None = None,
    execution: ExecutionTarget | None = None,
) -> LibraryBuild:
    """The library for Windows of the sources in `root`/runtime, from the cache or built into it; see `LibraryRequest`.

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
    found = find_windows_tools(request.environment) if request.rootfs is None else None

    def build(staged: Path) -> dict[str, str]:
        folder = staged / "work" / "dl"
        dl = dl_source(root, cache=cache, folder=folder, environment=request.environment)
        settings = {"CMAKE_TOOLCHAIN_FILE": f"{WORK}/in/source/cmake/mingw.cmake"}
        if found is not None:
            settings["AOTFORGE_LLVM_DLLTOOL"] = str(found.dlltool)
        compiler = request.build(
            "runtime library for Windows",
            staged,
            tools=found.tools if found else None,
            folders={"AOTFORGE_DL_ORIGINAL": dl.original} if dl.original else {},
            settings=settings,
            compilers={"CC": f"{TARGET}-gcc-posix", "CXX": f"{TARGET}-g++-posix"},
        )
        check_dll(staged / "prefix" / LIBRARY, exported_names(root))
        _copy_licence(dl, staged / "prefix")
        shutil.rmtree(staged / "work")
        return {"compiler": compiler, "dl": dl.name}

    inputs = inputs_key(
        platform="win_amd64",
        manifest=request.manifest.model_dump(mode="json"),
        dl=hashlib.sha256((root / "manifests" / "dl.yaml").read_bytes()).hexdigest(),
        sources=request.sources,
        tools=request.identity(found.identity if found else ()),
    )
    return request.cached(LIBRARY, inputs, build)


def _copy_licence(dl: DlSource, prefix: Path) -> None:
    """The licence of dlfcn-win32, when dl is built from it."""
    text = dl.original / "COPYING" if dl.original is not None else None
    if text is not None and text.exists():
        target = prefix / "share" / "licenses" / "aotriton" / "LICENSE.dlfcn-win32"
        target.parent.mkdir(parents=True)
        target.write_bytes(text.read_bytes())


def exported_names(root: Path) -> frozenset[str]:
    """Names that the library must export, and no others: those of `EXPORTS`."""
    lines = (root / EXPORTS).read_text(encoding="utf-8").partition("\nEXPORTS\n")[2].splitlines()
    return frozenset(line.partition(" = ")[0].strip().strip('"') for line in lines)


def check_dll(path: Path, exports: frozenset[str]) -> None:
    """Raises RuntimeBuildError for an import beyond `ALLOWED_IMPORTS`, other exports, a link time, or missing hardening."""
    try:
        data = path.read_bytes()
        names = {entry.name or f"ordinal {entry.ordinal}" for entry in read_exports(data)}
        unexpected, extra, missing = set(imports(data)) - ALLOWED_IMPORTS, names - exports, exports - names
    except OSError as error:
        raise RuntimeBuildError(f"{path} cannot be read: {error.strerror}") from error
    except RuntimeBuildError as error:
        raise RuntimeBuildError(f"{path}: {error.what}") from error
    hardened = HIGH_ENTROPY | DYNAMIC_BASE | NX_COMPATIBLE
    checks = (
        (unexpected, f"it imports {', '.join(sorted(unexpected))}"),
        (extra, f"it exports {min(extra, default='')}"),
        (missing, f"it lacks {min(missing, default='')}"),
        (link_time(data) != 0, "it contains the time of its linking"),
        (~characteristics(data) & hardened, "its addresses are fixed or its data is executable"),
    )
    if problems := [text for failed, text in checks if failed]:
        raise RuntimeBuildError(
            f"{path}: {'; '.join(problems)}",
            cause="a compiler or linker that ignores runtime/cmake/windows.cmake",
            hint=INSTALL,
        )
