"""The library for Windows as it is released, and programs that use it under Wine: built by mingw-w64, or by
clang as MSVC would."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from aotforge.errors import ToolchainError
from aotforge.library.build_tools import find_dlltool, find_windows_tools
from aotforge.library.build_windows import build_windows_runtime
from aotforge.library.cmake_build import configure_and_build
from aotforge.library.library_build import LibraryBuild, LibraryRequest
from tests.support.runtime import CACHE, ROOT, alone, tree_digest
from tests.support.wine import Wine, windows_path

DLL = "aotriton_v2.dll"
MSVC = ROOT / "runtime" / "tests" / "msvc"
_KERNEL32 = ("ExitProcess", "GetModuleHandleA", "GetProcAddress", "GetStdHandle", "WriteFile")
_CLANG = (
    "--target=x86_64-pc-windows-msvc",
    "-std=c++17",
    "-nostdinc++",
    "-fno-exceptions",
    "-fno-rtti",
    "-mno-stack-arg-probe",
)


@cache
def missing_mingw() -> str:
    """Why nothing can be built for Windows here; empty when it can."""
    try:
        find_windows_tools(os.environ)
    except ToolchainError as error:
        return f"{error.what}: {error.hint}"
    return ""


def missing_msvc_tools() -> str:
    """Why no program can be built as MSVC would; empty when one can."""
    lacking = [name for name in ("clang-19", "lld-link-19") if shutil.which(name) is None]
    return f"{', '.join(lacking)} missing (Debian: clang-19 lld-19)" if lacking else ""


@dataclass(frozen=True, kw_only=True)
class WindowsObjects:
    """The runtime's install prefix and a build folder of the test programs."""

    runtime: LibraryBuild
    folder: Path

    @property
    def library(self) -> Path:
        return self.runtime.prefix / "lib" / DLL

    def program(self, name: str) -> Path:
        return self.folder / f"{name}.exe"

    def hip(self, major: int) -> Path:
        return self.folder / f"hip{major}"

    def place(self, folder: Path, *programs: str) -> Path:
        """Copies the library and programs into `folder`, which is made, and returns it."""
        folder.mkdir(parents=True, exist_ok=True)
        for file in (self.library, *(self.program(name) for name in programs)):
            shutil.copy(file, folder)
        return folder


def windows_objects() -> WindowsObjects:
    """Builds library and test programs for the present sources, or finds them built."""
    runtime = build_windows_runtime(LibraryRequest(root=ROOT, cache=CACHE, jobs=2))
    tools = find_windows_tools(os.environ)
    facts = (
        tree_digest(ROOT / "runtime" / "tests")
        + tree_digest(ROOT / "runtime" / "hip_double")
        + runtime.inputs
    )
    folder = CACHE / "runtime-tests" / hashlib.sha256(facts.encode()).hexdigest()[:24]
    with alone(folder):
        if not (folder / "done").exists():
            settings = {
                "CMAKE_TOOLCHAIN_FILE": str(ROOT / "runtime" / "cmake" / "mingw.cmake"),
                "aotriton_DIR": str(runtime.prefix / "lib" / "cmake" / "aotriton"),
            }
            source = ROOT / "runtime" / "tests" / "windows"
            configure_and_build(source, folder / "objects", tools, settings, jobs=2, environment=os.environ)
            (folder / "done").touch()
    return WindowsObjects(runtime=runtime, folder=folder / "objects")


def run(
    wine: Wine,
    program: Path,
    *words: str,
    hip: Path | None,
    lines: Sequence[str] = (),
    folder: Path | None = None,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Runs a program with the double of HIP in `hip` on its PATH; `lines` are its input."""
    extra = {"WINEPATH": windows_path(hip)} if hip is not None else {}
    text = "".join(f"{line}\n" for line in lines)
    return wine.run(program, *words, folder=folder, environment=extra | environment, text=text)


def events(text: str) -> list[dict[str, Any]]:
    """What the double recorded, from a program's output."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def msvc_client(objects: WindowsObjects, folder: Path) -> Path:
    """`runtime/tests/msvc/client.cpp` as a program of x86_64-pc-windows-msvc, linked with the import library
    for MSVC."""
    exports = "LIBRARY KERNEL32.dll\nEXPORTS\n" + "".join(f"  {name}\n" for name in _KERNEL32)
    (folder / "kernel32.def").write_text(exports)
    dlltool = find_dlltool(os.environ)
    _done([dlltool, "-m", "i386:x86-64", "-d", "kernel32.def", "-l", "kernel32.lib"], folder)
    compile_msvc(objects, (MSVC / "client.cpp").read_text(), folder, name="client", includes=[MSVC])
    link = [
        "lld-link-19",
        "/nodefaultlib",
        "/entry:mainCRTStartup",
        "/subsystem:console",
        "client.obj",
        "kernel32.lib",
    ]
    _done([*link, objects.runtime.prefix / "lib" / "aotriton_v2.lib", "/out:client.exe"], folder)
    return folder / "client.exe"


def compile_msvc(
    objects: WindowsObjects, source: str, folder: Path, *, name: str, includes: Sequence[Path] = ()
) -> None:
    """Compiles against the installed headers, the stand-ins for Microsoft's and for HIP's, to
    `folder`/`name`.obj."""
    (folder / f"{name}.cpp").write_text(source)
    folders = [
        *includes,
        objects.runtime.prefix / "include",
        MSVC / "include",
        ROOT / "runtime" / "src" / "standin",
    ]
    words = ["clang-19", *_CLANG, "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-invalid-offsetof"]
    _done([*words, *(f"-I{path}" for path in folders), "-c", f"{name}.cpp", "-o", f"{name}.obj"], folder)


def _done(command: Sequence[str | Path], folder: Path) -> None:
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def linux_run(program: Path, hip: Path, lines: Sequence[str], environment: Mapping[str, str]) -> str:
    """Output of the Linux driver for the same input."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("HIP_DOUBLE", "AOTRITON"))
    }
    env = kept | {"LD_LIBRARY_PATH": str(hip)} | dict(environment)
    text = "".join(f"{line}\n" for line in lines)
    return subprocess.run([program], input=text, env=env, capture_output=True, text=True, check=True).stdout
