"""Build of the library for Linux into the cache, and checks of its ELF structure."""

import re
from pathlib import Path

from aotforge.errors import RuntimeBuildError
from aotforge.library.build_tools import find_tools
from aotforge.library.cmake_build import CMakeBuild
from aotforge.library.library_build import LibraryBuild, LibraryRequest
from aotforge.library.operator_functions import function_sources, write_sources

OPERATOR_LIBRARY = "libaotforge_ops.so"
"""File name and SONAME of the operator library."""

_ALLOWED_NEEDS = re.compile(r"^(libc|libm|libdl|libpthread|ld-linux-x86-64|libgcc_s)\.so\.\d+$")


def build_runtime(request: LibraryRequest) -> LibraryBuild:
    """The library for Linux, from the cache or built into it, and the operator library of the kernels'
    functions.

    Raises ToolchainError, RuntimeBuildError, ManifestError, RulesError, CacheError; in an executor LimitError
    and ExecutorError."""
    soname = request.soname
    functions = function_sources(request.root / "kernels")

    def build(work: Path) -> CMakeBuild:
        folders = {"AOTFORGE_OPS_DIR": write_sources(functions, work / "functions")} if functions else {}
        return CMakeBuild(name="runtime library", folders=folders)

    def check(prefix: Path) -> None:
        if functions:
            check_library(prefix / "lib" / OPERATOR_LIBRARY, OPERATOR_LIBRARY)
        check_library(prefix / "lib" / soname, soname)

    return request.make(f"lib/{soname}", find_tools, build, check, functions=functions)


def check_library(path: Path, soname: str) -> None:
    """Raises RuntimeBuildError for another SONAME, an RPATH, a needed library beyond glibc, an executable
    stack or a writable relocation table."""
    from aotforge.formats.shared_library import read_shared_library  # noqa: PLC0415 - pyelftools: 18 ms

    try:
        library = read_shared_library(path)
    except (OSError, ValueError) as error:
        raise RuntimeBuildError(f"{path} is not a library: {error}") from error
    unexpected = [name for name in library.needed if not _ALLOWED_NEEDS.match(name)]
    flags, tags = dict(library.segments), library.tags
    checks = (
        (library.sonames != [soname], f"SONAME is {library.sonames}, not {soname}"),
        ("DT_RPATH" in tags or "DT_RUNPATH" in tags, "it has an RPATH"),
        ("DT_TEXTREL" in tags, "it has text relocations"),
        (unexpected, f"it needs {', '.join(unexpected)}"),
        (flags.get("PT_GNU_STACK", 1) & 1, "its stack is executable"),
        ("PT_GNU_RELRO" not in flags, "its relocations stay writable"),
    )
    if problems := [text for failed, text in checks if failed]:
        raise RuntimeBuildError(
            f"{path}: {'; '.join(problems)}",
            cause="a compiler or linker that ignores runtime/CMakeLists.txt",
            hint="build with GCC or clang and GNU ld",
        )
