"""Builds for Windows x86-64 with mingw-w64: the library and dl."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from aotforge.base.files import output_lock, staged_folder
from aotforge.errors import RuntimeBuildError
from aotforge.formats.api_level import feature_level
from aotforge.formats.pe import DYNAMIC_BASE, HIGH_ENTROPY, NX_COMPATIBLE, read_module
from aotforge.formats.pe import exports as read_exports
from aotforge.library.build_tools import (
    MINGW_INSTALL,
    MINGW_TARGET,
    cross_environment,
    find_tools,
    find_windows_tools,
)
from aotforge.library.cmake_build import CMakeBuild, configure_and_build
from aotforge.library.library_build import LibraryBuild, LibraryRequest, file_digests
from aotforge.run.step import WORK

LIBRARY = "lib/aotriton_v2.dll"
ALLOWED_IMPORTS = frozenset({"KERNEL32.DLL", "MSVCRT.DLL"})
"""Libraries of every Windows. HIP is not one of them: it is looked up at run time."""


def build_windows_runtime(request: LibraryRequest) -> LibraryBuild:
    """The library for Windows, from the cache or built into it. Raises what `build_runtime` raises."""
    build = CMakeBuild(
        name="runtime library for Windows",
        settings={"CMAKE_TOOLCHAIN_FILE": f"{WORK}/in/source/cmake/mingw.cmake"},
        compilers={"CC": f"{MINGW_TARGET}-gcc-posix", "CXX": f"{MINGW_TARGET}-g++-posix"},
    )

    def check(prefix: Path) -> None:
        check_dll(prefix / LIBRARY, exported_names(request.root, request.api_level))

    return request.make(LIBRARY, find_windows_tools, lambda work: build, check, platform="win_amd64")


def exports_file(level: str) -> Path:
    """The table of an API level (0.13 or 0.13b), below the checkout."""
    return Path("runtime", "src", "windows", f"exports-{feature_level(level)}.def")


def exported_names(root: Path, level: str) -> frozenset[str]:
    """Names that the library of an API level must export, and no others: those of its `exports_file`."""
    lines = (root / exports_file(level)).read_text(encoding="utf-8").partition("\nEXPORTS\n")[2].splitlines()
    return frozenset(line.partition(" = ")[0].strip().strip('"') for line in lines)


def check_dll(path: Path, exports: frozenset[str]) -> None:
    """Raises RuntimeBuildError for other imports or exports, a link time, no hardening."""
    try:
        data = path.read_bytes()
        module = read_module(data)
        names = {entry.name or f"ordinal {entry.ordinal}" for entry in read_exports(data)}
        unexpected, extra, missing = set(module.imports) - ALLOWED_IMPORTS, names - exports, exports - names
    except OSError as error:
        raise RuntimeBuildError(f"{path} cannot be read: {error.strerror}") from error
    except RuntimeBuildError as error:
        raise RuntimeBuildError(f"{path}: {error.what}") from error
    hardened = HIGH_ENTROPY | DYNAMIC_BASE | NX_COMPATIBLE
    checks = (
        (unexpected, f"it imports {', '.join(sorted(unexpected))}"),
        (extra, f"it exports {min(extra, default='')}"),
        (missing, f"it lacks {min(missing, default='')}"),
        (module.link_time != 0, "it contains the time of its linking"),
        (~module.characteristics & hardened, "its addresses are fixed or its data is executable"),
    )
    if problems := [text for failed, text in checks if failed]:
        raise RuntimeBuildError(
            f"{path}: {'; '.join(problems)}",
            cause="a compiler or linker that ignores runtime/cmake/windows.cmake",
            hint=MINGW_INSTALL,
        )


def build_dl(root: Path, *, output: Path, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Builds dl into `output`, which is replaced in one step; an earlier build there survives any failure.

    It has lib/dl.dll, lib/dl.lib (linkers that target MSVC), lib/libdl.dll.a (GNU linkers), lib/libdl.a and
    include/dlfcn.h; returns their SHA-256 by path. Raises ToolchainError, RuntimeBuildError, OutputError.
    """
    env = cross_environment(os.environ if environment is None else environment)
    tools = find_tools(env)
    with (
        output_lock(output),
        tempfile.TemporaryDirectory(prefix="aotforge-dl-") as work,
        staged_folder(output, known="lib/dl.dll") as staged,
    ):
        configure_and_build(
            root / "runtime" / "dl",
            Path(work) / "objects",
            tools,
            {"CMAKE_SYSTEM_NAME": "Windows", "CMAKE_SYSTEM_PROCESSOR": "x86_64"},
            environment=env,
            install=staged,
        )
    return file_digests(output)
