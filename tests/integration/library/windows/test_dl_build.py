"""dl: reproducible bytes, the interface and nothing else, under Wine and for linkers of MSVC's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from aotforge.errors import ToolchainError
from aotforge.formats.pe import exports, imports
from aotforge.library.build_windows import build_dl
from tests.support.dl import PROGRAMS, DlPrograms, dl_programs, missing_mingw
from tests.support.runtime import CACHE, ROOT
from tests.support.wine import Wine

pytestmark = pytest.mark.skipif(bool(missing_mingw()), reason=missing_mingw())


def run(*words: str | Path) -> None:
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr


def test_the_bytes_do_not_depend_on_the_folder(tmp_path: Path) -> None:
    """Import libraries and the static library included."""
    elsewhere = tmp_path / "a much longer folder, тест" / "clone"
    for folder in ("dl", "cmake"):
        shutil.copytree(ROOT / "runtime" / folder, elsewhere / "runtime" / folder)
    again = build_dl(elsewhere, output=tmp_path / "again")
    first = dl_programs().dl
    assert set(again) == {
        "include/dlfcn.h", "lib/dl.dll", "lib/dl.lib", "lib/libdl.a", "lib/libdl.dll.a",
    }  # fmt: skip
    for name in again:
        assert (tmp_path / "again" / name).read_bytes() == (first / name).read_bytes(), name


def test_it_exports_the_interface_and_imports_the_system_only() -> None:
    library = (dl_programs().dl / "lib" / "dl.dll").read_bytes()
    assert {export.name for export in exports(library)} == {"dladdr", "dlclose", "dlerror", "dlopen", "dlsym"}
    assert imports(library) == ("KERNEL32.DLL", "MSVCRT.DLL")
    assert b"/runtime/dl" not in library and str(CACHE).encode() not in library


@pytest.mark.parametrize("imported", [True, False], ids=["dllimport", "thunk"])
def test_a_program_for_msvc_links_and_runs(wine: Wine, tmp_path: Path, imported: bool) -> None:
    programs = dl_programs()
    (tmp_path / "kernel32.def").write_text("LIBRARY KERNEL32.dll\nEXPORTS\n  ExitProcess\n")
    run(
        "llvm-dlltool-19",
        "-m",
        "i386:x86-64",
        "-d",
        tmp_path / "kernel32.def",
        "-l",
        tmp_path / "kernel32.lib",
    )
    flags = ["-DDLFCN_WIN32_SHARED"] if imported else []
    run(
        "clang-19", "--target=x86_64-pc-windows-msvc", "-c", "-O1", "-ffreestanding", "-fno-stack-protector",
            *flags,
        "-I", programs.dl / "include", PROGRAMS / "msvc_client.c", "-o", tmp_path / "client.obj",
    )  # fmt: skip
    run(
        "lld-link-19", "/nodefaultlib", "/entry:start", "/subsystem:console",
        tmp_path / "client.obj", programs.dl / "lib" / "dl.lib", tmp_path / "kernel32.lib",
        f"/out:{tmp_path / 'client.exe'}",
    )  # fmt: skip
    for name in ("dl.dll", "plug_a.dll"):
        shutil.copy(programs.folder / name, tmp_path)
    assert wine.run(tmp_path / "client.exe", folder=tmp_path).returncode == 0


def test_without_mingw_the_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="x86_64-w64-mingw32") as missing:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "earlier").touch()
        build_dl(ROOT, output=tmp_path / "out", environment={"PATH": str(tmp_path)})
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["earlier"]
    assert "g++-mingw-w64-x86-64-posix" in missing.value.hint


# a module that dl opens has its own copy of a static dl, with lists of its own
STATIC = {"next_skips_local", "next_of_last"}


@pytest.fixture(scope="module")
def programs() -> DlPrograms:
    return dl_programs()


def failures(wine: Wine, programs: DlPrograms, name: str, *words: str) -> tuple[set[str], int]:
    """Names of the checks that failed, and how many were made."""
    done = wine.run(programs.program(name), *words, folder=programs.folder)
    assert done.returncode == 0 and done.stdout.endswith("finished\n"), (done.stdout, done.stderr)
    lines = done.stdout.splitlines()[:-1]
    return {line.split()[1].rstrip(":") for line in lines if not line.startswith("ok ")}, len(lines)


def test_the_interface(wine: Wine, programs: DlPrograms) -> None:
    failed, count = failures(wine, programs, "interface", "beyond")
    assert not failed and count > 60


def test_the_static_library(wine: Wine, programs: DlPrograms) -> None:
    assert failures(wine, programs, "interface_static", "beyond")[0] == STATIC


@pytest.mark.parametrize(("name", "checks"), [("threads", 5), ("threads_static", 6)])
def test_threads_leave_nothing(wine: Wine, programs: DlPrograms, name: str, checks: int) -> None:
    failed, count = failures(wine, programs, name)
    assert not failed and count == checks
