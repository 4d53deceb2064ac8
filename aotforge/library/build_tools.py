"""Build tools of this machine: compilers for Linux and Windows, cmake and ninja."""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aotforge.base.child_processes import run_child, tool_environment
from aotforge.base.files import read_bytes
from aotforge.errors import ToolchainError

_INSTALL = "apt-get install g++ cmake ninja-build"

_BROKEN = "it is a script whose interpreter is gone, as in an environment that was moved"
_LIBRARIES = ("libstdc++.a", "libc.so.6")
_VERSION_SECONDS = 60

MINGW_TARGET = "x86_64-w64-mingw32"
MINGW_PACKAGES = "g++-mingw-w64-x86-64-posix llvm-19 cmake ninja-build"
"""Debian packages that a Windows build needs."""

MINGW_INSTALL = f"apt-get install {MINGW_PACKAGES}"

_DLLTOOLS = ("llvm-dlltool-19", "llvm-dlltool", *(f"llvm-dlltool-{version}" for version in (22, 18, 16, 14)))
_MINGW_LIBRARIES = (
    "libstdc++.a",
    "libgcc.a",
    "libgcc_eh.a",
    "libwinpthread.a",
    "libmingw32.a",
    "libmingwex.a",
    "libmsvcrt.a",
)


@dataclass(frozen=True, kw_only=True)
class Tools:
    """The programs that build the library, as absolute paths. `compiler` is the C++ compiler's own
    description.

    `identity` names everything of this machine that the library's bytes can depend on: versions of the
    programs, SHA-256 of the static libraries and of glibc. `dlltool`: LLVM's, which writes import libraries
    for Windows.
    """

    cc: Path
    cxx: Path
    cmake: Path
    ninja: Path
    compiler: str
    identity: tuple[tuple[str, str], ...]
    dlltool: Path | None = None

    @property
    def settings(self) -> dict[str, str]:
        """CMake variables that select the programs."""
        dlltool = {"AOTFORGE_LLVM_DLLTOOL": str(self.dlltool)} if self.dlltool is not None else {}
        return dlltool | {
            "CMAKE_MAKE_PROGRAM": str(self.ninja),
            "CMAKE_C_COMPILER": str(self.cc),
            "CMAKE_CXX_COMPILER": str(self.cxx),
        }


def run_tool(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    seconds: float,
    folder: Path | None = None,
    hint: str = "install it again, then build again",
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; compilers and linkers inherit little of `environment`. Raises ToolchainError
    when it does not start or takes longer than `seconds`."""
    try:
        own = tool_environment(environment)
        return run_child(command, environment=own, cwd=folder, capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise ToolchainError(f"{command[0]} ran for more than {seconds:g} s", hint=hint) from error
    except OSError as error:
        raise ToolchainError(
            f"{command[0]} does not run: {error.strerror}", cause=_BROKEN, hint=hint
        ) from error


def find_program(what: str, names: Sequence[str], path: str, *, hint: str, beside: bool = False) -> Path:
    """The first of `names` on `path`, or next to the running Python. Raises ToolchainError."""
    for name in names:
        own = str(Path(sys.executable).parent) if beside else ""
        if program := shutil.which(name, path=path) or (own and shutil.which(name, path=own)):
            return Path(program).absolute()
    raise ToolchainError(
        f"no {what} found (searched for {', '.join(Path(name).name for name in names)})",
        cause="it is not installed, or not on PATH",
        hint=hint,
    )


def find_tools(environment: Mapping[str, str], *, libraries: tuple[str, ...] = _LIBRARIES) -> Tools:
    """CXX and CC if set; else g++ and gcc, else clang. `libraries` are those that the compiler links and
    whose bytes count. Raises ToolchainError with the command that installs what is missing."""
    path = environment.get("PATH", "")
    cxx = _compiler("C++ compiler", environment.get("CXX", ""), ("g++", "clang++", "c++"), path)
    cc = _compiler("C compiler", environment.get("CC", ""), _c_compilers(cxx), path)
    cmake, ninja = (
        find_program(names[0], names, path, hint=_INSTALL, beside=True)
        for names in (("cmake",), ("ninja", "ninja-build"))
    )
    env = environment
    identity = {
        "C++ compiler": _describe(cxx, env),
        "C compiler": _describe(cc, env),
        "linker": _linker(cxx, env),
        "cmake": _first_line(cmake, "--version", env),
        **{name: _library(cxx, name, env) for name in libraries},
    }
    return Tools(
        cc=cc,
        cxx=cxx,
        cmake=cmake,
        ninja=ninja,
        compiler=identity["C++ compiler"],
        identity=tuple(identity.items()),
    )


def _c_compilers(cxx: Path) -> tuple[str, ...]:
    """The C compiler of the same version as the C++ compiler first: gcc-12 for g++-12."""
    name = cxx.name.replace("clang++", "clang").replace("g++", "gcc")
    return (str(cxx.with_name(name)), "gcc", "clang", "cc")


def _compiler(what: str, chosen: str, names: tuple[str, ...], path: str) -> Path:
    if not chosen:
        return find_program(what, names, path, hint=_INSTALL, beside=True)
    if program := shutil.which(chosen, path=path):
        return Path(program)
    raise ToolchainError(
        f"the {what} {chosen} does not exist", hint="correct or unset CXX and CC, then build again"
    )


def _describe(compiler: Path, env: Mapping[str, str]) -> str:
    """First line of --version and the target: they distinguish the outputs of compilers."""
    return " for ".join(_first_line(compiler, flag, env) for flag in ("--version", "-dumpmachine"))


def _linker(cxx: Path, env: Mapping[str, str]) -> str:
    """Version of the linker that the compiler runs; '' when it is built in."""
    named = _first_line(cxx, "-print-prog-name=ld", env)
    program = shutil.which(named, path=env.get("PATH", ""))
    return _first_line(Path(program), "--version", env) if program else ""


def _library(cxx: Path, name: str, env: Mapping[str, str]) -> str:
    """SHA-256 of a library that the compiler links; '' when it has none and prints the bare name."""
    path = Path(_first_line(cxx, f"-print-file-name={name}", env))
    if not (path.is_absolute() and path.is_file()):
        return ""
    return hashlib.sha256(read_bytes(path, ToolchainError, hint=_INSTALL)).hexdigest()


def _first_line(tool: Path, flag: str, env: Mapping[str, str]) -> str:
    done = run_tool([str(tool), flag], env, seconds=_VERSION_SECONDS, hint=_INSTALL)
    if done.returncode != 0 or not done.stdout.strip():
        raise ToolchainError(f"{tool} {flag} fails", cause=done.stderr.strip()[:200], hint=_INSTALL)
    return done.stdout.strip().splitlines()[0].strip()


def find_compiler(environment: Mapping[str, str], language: str = "CC") -> str:
    """Path of the compiler for C ("CC") or C++ ("CXX"). Raises ToolchainError."""
    stem = f"{MINGW_TARGET}-{'gcc' if language == 'CC' else 'g++'}"
    names = (f"{stem}-posix", stem)
    return str(find_program("compiler for Windows", names, environment.get("PATH", ""), hint=MINGW_INSTALL))


def find_dlltool(environment: Mapping[str, str]) -> Path:
    """LLVM's dlltool. Raises ToolchainError."""
    return find_program("dlltool of LLVM", _DLLTOOLS, environment.get("PATH", ""), hint=MINGW_INSTALL)


def cross_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` with mingw-w64's compilers as CC and CXX. Raises ToolchainError."""
    return dict(environment) | {name: find_compiler(environment, name) for name in ("CXX", "CC")}


def find_windows_tools(environment: Mapping[str, str]) -> Tools:
    """mingw-w64's compilers and dlltool. Raises ToolchainError."""
    env = cross_environment(environment)
    dlltool = find_dlltool(environment)
    tools = find_tools(env, libraries=_MINGW_LIBRARIES)
    # its --version is the same for different builds
    digest = hashlib.sha256(dlltool.resolve().read_bytes()).hexdigest()
    return replace(tools, dlltool=dlltool, identity=(*tools.identity, ("dlltool", digest)))
