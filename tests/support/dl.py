"""dl for Windows and its test programs, built once by mingw-w64 and shared by test processes."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from aotforge.library.build_tools import MINGW_TARGET
from aotforge.library.build_windows import build_dl
from tests.support.runtime import CACHE, ROOT, alone, tree_digest

GCC = f"{MINGW_TARGET}-gcc-posix"
PROGRAMS = ROOT / "runtime" / "tests" / "dl"
_SECONDS = 300
_PROGRAMS = {"interface": "-mconsole", "threads": "-mconsole", "paths": "-municode"}
_PLUGS = {"plug_a": ("a_only", 1), "plug_b": ("b_only", 2)}


@dataclass(frozen=True)
class DlPrograms:
    """`folder` holds dl.dll, the test programs and the modules that they open; `dl` is what build_dl made."""

    folder: Path
    dl: Path

    def program(self, name: str) -> Path:
        return self.folder / f"{name}.exe"


def missing_mingw() -> str:
    """Why nothing can be built for Windows here; empty when it can."""
    for tool, package in (
        (GCC, "g++-mingw-w64-x86-64-posix"),
        ("clang-19", "clang-19"),
        ("lld-link-19", "lld-19"),
        ("llvm-dlltool-19", "llvm-19"),
    ):
        if not shutil.which(tool):
            return f"{tool} is not installed (Debian: {package})"
    return ""


def compile_c(*words: str | Path) -> None:
    command = [GCC, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-static", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert done.returncode == 0, done.stderr


def dl_programs() -> DlPrograms:
    """Built against aotforge's dl, in the cache."""
    facts = tree_digest(ROOT / "runtime" / "dl") + tree_digest(PROGRAMS) + Path(__file__).read_text()
    folder = CACHE / "dl-tests" / hashlib.sha256(facts.encode()).hexdigest()[:24]
    with alone(folder):
        if not (folder / "done").exists():
            build_dl(ROOT, output=folder / "dl")
            _build(folder / "dl", folder / "programs", tuple(_PROGRAMS))
            (folder / "done").touch()
    return DlPrograms(folder / "programs", folder / "dl")


def _build(dl: Path, folder: Path, programs: tuple[str, ...]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shared: list[str | Path] = ["-DDLFCN_WIN32_SHARED", "-I", dl / "include"]
    library = dl / "lib" / "libdl.dll.a"
    for name, (only, number) in _PLUGS.items():
        definition: list[str | Path] = [PROGRAMS / "plug_a.def"] if name == "plug_a" else []
        compile_c(
            *shared, f"-DNAME_ONLY={only}", f"-DID={number}", "-shared", PROGRAMS / "plug.c", *definition,
            library,
            "-o", folder / f"{name}.dll",
        )  # fmt: skip
    compile_c(*shared, "-shared", PROGRAMS / "plug_init.c", library, "-o", folder / "plug_init.dll")
    for name in programs:
        option = _PROGRAMS[name]
        compile_c(*shared, option, PROGRAMS / f"{name}.c", library, "-o", folder / f"{name}.exe")
        static: list[str | Path] = [
            "-I",
            dl / "include",
            option,
            PROGRAMS / f"{name}.c",
            dl / "lib" / "libdl.a",
        ]
        compile_c(*static, "-o", folder / f"{name}_static.exe")
    shutil.copy(dl / "lib" / "dl.dll", folder)
    (folder / "bad.dll").write_text("no module, but a text\n")
