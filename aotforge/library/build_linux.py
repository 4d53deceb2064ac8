"""Build of the library for Linux into the cache, and checks of its ELF structure."""

import re
import shutil
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from aotforge.errors import RuntimeBuildError
from aotforge.library.build_tools import find_tools
from aotforge.library.cmake_build import CMakeBuild
from aotforge.library.library_build import LibraryBuild, LibraryRequest, inputs_key

_ALLOWED_NEEDS = re.compile(r"^(libc|libm|libdl|libpthread|ld-linux-x86-64|libgcc_s)\.so\.\d+$")


def build_runtime(request: LibraryRequest) -> LibraryBuild:
    """The library for Linux, from the cache or built into it. Raises ToolchainError, RuntimeBuildError, ManifestError, CacheError;
    in an executor LimitError and ExecutorError."""
    tools = find_tools(request.environment) if request.rootfs is None else None
    soname = request.manifest.soname

    def build(staged: Path) -> dict[str, str]:
        compiler = request.build(staged, CMakeBuild(name="runtime library", tools=tools))
        glibc = check_library(staged / "prefix" / "lib" / soname, soname)
        shutil.rmtree(staged / "work")
        return {"compiler": compiler, "glibc": glibc}

    inputs = inputs_key(
        manifest=request.manifest.model_dump(mode="json"),
        sources=request.sources,
        tools=request.identity(tools.identity if tools else ()),
    )
    return request.cached(f"lib/{soname}", inputs, build)


def check_library(path: Path, soname: str) -> str:
    """The newest glibc symbol version that the library needs, e.g. "2.35".

    Raises RuntimeBuildError for another SONAME, an RPATH, a needed library beyond glibc, an executable stack or a
    writable relocation table.
    """
    try:
        with path.open("rb") as file:
            elf = ELFFile(file)
            tags = _dynamic(elf)
            problems = _problems(elf, tags, soname)
            versions = _versions(elf)
    except (OSError, ELFError) as error:
        raise RuntimeBuildError(f"{path} is not a library: {error}") from error
    if problems:
        raise RuntimeBuildError(
            f"{path}: {'; '.join(problems)}",
            cause="a compiler or linker that ignores runtime/CMakeLists.txt",
            hint="build with GCC or clang and GNU ld",
        )
    return max(versions, key=lambda text: tuple(int(part) for part in text.split(".")))


def _dynamic(elf: Any) -> dict[str, list[Any]]:
    tags: dict[str, list[Any]] = {}
    section = elf.get_section_by_name(".dynamic")
    if not isinstance(section, DynamicSection):
        return tags
    for tag in section.iter_tags():
        value = getattr(tag, "soname", None) or getattr(tag, "needed", None) or tag.entry.d_val
        tags.setdefault(tag.entry.d_tag, []).append(value)
    return tags


def _problems(elf: Any, tags: dict[str, list[Any]], soname: str) -> list[str]:
    unexpected = [name for name in tags.get("DT_NEEDED", []) if not _ALLOWED_NEEDS.match(name)]
    flags = {segment["p_type"]: segment["p_flags"] for segment in elf.iter_segments()}
    checks = (
        (tags.get("DT_SONAME") != [soname], f"SONAME is {tags.get('DT_SONAME')}, not {soname}"),
        ("DT_RPATH" in tags or "DT_RUNPATH" in tags, "it has an RPATH"),
        ("DT_TEXTREL" in tags, "it has text relocations"),
        (unexpected, f"it needs {', '.join(unexpected)}"),
        (flags.get("PT_GNU_STACK", 1) & 1, "its stack is executable"),
        ("PT_GNU_RELRO" not in flags, "its relocations stay writable"),
    )
    return [text for failed, text in checks if failed]


def _versions(elf: Any) -> list[str]:
    section = elf.get_section_by_name(".gnu.version_r")
    entries = section.iter_versions() if isinstance(section, GNUVerNeedSection) else ()
    names = [entry.name for _, group in entries for entry in group]
    return ["2.0", *(name.removeprefix("GLIBC_") for name in names if name.startswith("GLIBC_2"))]
