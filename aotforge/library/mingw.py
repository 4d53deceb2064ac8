"""mingw-w64's compilers and LLVM's dlltool, which build for Windows x86-64."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.errors import ToolchainError
from aotforge.library.build_tools import Tools, find_program, find_tools

TARGET = "x86_64-w64-mingw32"
PACKAGES = "g++-mingw-w64-x86-64-posix llvm-19 cmake ninja-build"
"""Debian packages that a Windows build needs."""

INSTALL = f"apt-get install {PACKAGES}"

_DLLTOOLS = ("llvm-dlltool-19", "llvm-dlltool", *(f"llvm-dlltool-{version}" for version in (22, 18, 16, 14)))
_STATIC = (
    "libstdc++.a",
    "libgcc.a",
    "libgcc_eh.a",
    "libwinpthread.a",
    "libmingw32.a",
    "libmingwex.a",
    "libmsvcrt.a",
)


@dataclass(frozen=True, kw_only=True)
class WindowsTools:
    """mingw-w64's compilers with cmake and ninja, and LLVM's dlltool, which writes import libraries. `identity` names everything of
    this machine that the files' bytes can depend on."""

    tools: Tools
    dlltool: Path
    identity: tuple[tuple[str, str], ...]


def find_compiler(environment: Mapping[str, str], language: str = "CC") -> str:
    """Path of the compiler for C ("CC") or C++ ("CXX"): AOTFORGE_MINGW_CC or _CXX if set. Raises ToolchainError."""
    stem = f"{TARGET}-{'gcc' if language == 'CC' else 'g++'}"
    chosen = environment.get(f"AOTFORGE_MINGW_{language}")
    names = (chosen,) if chosen else (f"{stem}-posix", stem)
    return str(find_program("compiler for Windows", names, environment.get("PATH", ""), hint=INSTALL))


def find_dlltool(environment: Mapping[str, str]) -> Path:
    """LLVM's dlltool. Raises ToolchainError."""
    return find_program("dlltool of LLVM", _DLLTOOLS, environment.get("PATH", ""), hint=INSTALL)


def cross_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` with mingw-w64's compilers as CC and CXX. Raises ToolchainError."""
    return dict(environment) | {name: find_compiler(environment, name) for name in ("CXX", "CC")}


def find_windows_tools(environment: Mapping[str, str]) -> WindowsTools:
    """AOTFORGE_MINGW_CC and AOTFORGE_MINGW_CXX if set. Raises ToolchainError with the command that installs what is missing."""
    env = cross_environment(environment)
    dlltool = find_dlltool(environment)
    tools = find_tools(env, libraries=_STATIC)
    if TARGET not in tools.compiler:
        raise ToolchainError(
            f"{env['CXX']} is not a compiler for {TARGET}",
            cause=f"it is {tools.compiler}",
            hint=f"unset AOTFORGE_MINGW_CC and AOTFORGE_MINGW_CXX, or: {INSTALL}",
        )
    # its --version is the same for different builds
    digest = hashlib.sha256(dlltool.resolve().read_bytes()).hexdigest()
    return WindowsTools(tools=tools, dlltool=dlltool, identity=(*tools.identity, ("dlltool", digest)))
