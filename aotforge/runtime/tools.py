"""Finding the compiler, cmake and ninja: on PATH, or beside the running Python."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from aotforge.errors import ToolchainError
from aotforge.runtime.values import Tools

_INSTALL = {
    "C++ compiler": "apt-get install g++",
    "C compiler": "apt-get install gcc",
    "cmake": "apt-get install cmake, or pip install cmake",
    "ninja": "apt-get install ninja-build, or pip install ninja",
}


def find_tools(environment: Mapping[str, str]) -> Tools:
    """CXX and CC win when set; else g++ and gcc, else clang. Raises ToolchainError with the command that installs
    what is missing, or when the compiler does not use libstdc++."""
    path = environment.get("PATH", "")
    cxx = _program("C++ compiler", environment.get("CXX", ""), ("g++", "clang++", "c++"), path)
    cc = _program("C compiler", environment.get("CC", ""), _c_compilers(cxx), path)
    return Tools(
        cc=cc,
        cxx=cxx,
        cmake=_program("cmake", "", ("cmake",), path),
        ninja=_program("ninja", "", ("ninja", "ninja-build"), path),
        compiler=_describe(cxx),
    )


def _c_compilers(cxx: Path) -> tuple[str, ...]:
    """The C compiler that belongs to a C++ compiler comes first: g++-12 wants gcc-12."""
    name = cxx.name.replace("clang++", "clang").replace("g++", "gcc")
    return (str(cxx.with_name(name)), "gcc", "clang", "cc")


def _program(what: str, chosen: str, names: tuple[str, ...], path: str) -> Path:
    if chosen:
        found = shutil.which(chosen, path=path)
        if found is None:
            raise ToolchainError(
                f"the {what} {chosen} is not there", hint="correct or unset CXX and CC, then build again"
            )
        return Path(found)
    beside = str(Path(sys.executable).parent)
    for name in names:
        found = shutil.which(name, path=path) or shutil.which(name, path=beside)
        if found is not None:
            return Path(found).absolute()
    raise ToolchainError(
        f"no {what} found (looked for {', '.join(Path(name).name for name in names)})",
        cause="the machine does not have it on PATH",
        hint=_INSTALL[what],
    )


def _describe(cxx: Path) -> str:
    """First line of --version and the target, which together tell one compiler's output from another's."""
    lines = []
    for flag in ("--version", "-dumpmachine"):
        done = subprocess.run([str(cxx), flag], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0 or not done.stdout:
            raise ToolchainError(
                f"{cxx} {flag} fails", cause=done.stderr.strip()[:200], hint=_INSTALL["C++ compiler"]
            )
        lines.append(done.stdout.splitlines()[0].strip())
    return " for ".join(lines)
