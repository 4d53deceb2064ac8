"""Finding the compiler, cmake and ninja: on PATH, or beside the running Python."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from aotforge.errors import ToolchainError
from aotforge.library.library_build import Tools

_INSTALL = {
    "C++ compiler": "apt-get install g++",
    "C compiler": "apt-get install gcc",
    "cmake": "apt-get install cmake, or pip install cmake",
    "ninja": "apt-get install ninja-build, or pip install ninja",
    "linker": "apt-get install binutils",
}

BROKEN = "it is a script whose interpreter is gone, as in an environment that was moved, or made for another machine"
"""The likely cause when a program that is there cannot be started."""


_KEPT_VARIABLES = ("PATH", "HOME", "TMPDIR", "SYSTEMROOT")
_LIBRARIES = ("libstdc++.a", "libc.so.6")
_VERSION_SECONDS = 60


def tool_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What tools see of the caller's environment: where things are, in no language but English."""
    return {name: environment[name] for name in _KEPT_VARIABLES if name in environment} | {"LC_ALL": "C"}


def tool_settings(tools: Tools) -> dict[str, str]:
    """CMake's variables that name them."""
    return {
        "CMAKE_MAKE_PROGRAM": str(tools.ninja),
        "CMAKE_C_COMPILER": str(tools.cc),
        "CMAKE_CXX_COMPILER": str(tools.cxx),
    }


def find_tools(environment: Mapping[str, str], *, libraries: tuple[str, ...] = _LIBRARIES) -> Tools:
    """CXX and CC win when set; else g++ and gcc, else clang. Raises ToolchainError with the command that installs
    what is missing. `libraries` are those that the compiler links and whose bytes count."""
    path = environment.get("PATH", "")
    cxx = _program("C++ compiler", environment.get("CXX", ""), ("g++", "clang++", "c++"), path)
    cc = _program("C compiler", environment.get("CC", ""), _c_compilers(cxx), path)
    cmake = _program("cmake", "", ("cmake",), path)
    env = tool_environment(environment)
    compiler = _describe("C++ compiler", cxx, env)
    identity = {
        "C++ compiler": compiler,
        "C compiler": _describe("C compiler", cc, env),
        "linker": _linker(cxx, env),
        "cmake": _first_line("cmake", cmake, "--version", env),
        **{name: _library(cxx, name, env) for name in libraries},
    }
    return Tools(
        cc=cc,
        cxx=cxx,
        cmake=cmake,
        ninja=_program("ninja", "", ("ninja", "ninja-build"), path),
        compiler=compiler,
        identity=tuple(identity.items()),
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


def _describe(what: str, compiler: Path, env: Mapping[str, str]) -> str:
    """First line of --version and the target, which together tell one compiler's output from another's."""
    return " for ".join(_first_line(what, compiler, flag, env) for flag in ("--version", "-dumpmachine"))


def _linker(cxx: Path, env: Mapping[str, str]) -> str:
    """Version of the linker that the compiler runs; '' when it does not say which, as with one that is built in."""
    named = _first_line("C++ compiler", cxx, "-print-prog-name=ld", env)
    found = shutil.which(named, path=env.get("PATH", ""))
    return _first_line("linker", Path(found), "--version", env) if found else ""


def _library(cxx: Path, name: str, env: Mapping[str, str]) -> str:
    """SHA-256 of a library that the compiler links; '' when it has none, for then it prints the bare name."""
    path = Path(_first_line("C++ compiler", cxx, f"-print-file-name={name}", env))
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_absolute() and path.is_file() else ""
    except OSError as error:
        raise ToolchainError(
            f"{path} cannot be read: {error.strerror}", hint=_INSTALL["C++ compiler"]
        ) from error


def _first_line(what: str, tool: Path, flag: str, env: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            [str(tool), flag],
            capture_output=True,
            text=True,
            env=dict(env),
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"{tool} does not run: {error}", cause=BROKEN, hint=_INSTALL[what]) from error
    if done.returncode != 0 or not done.stdout.strip():
        raise ToolchainError(f"{tool} {flag} fails", cause=done.stderr.strip()[:200], hint=_INSTALL[what])
    return done.stdout.strip().splitlines()[0].strip()
