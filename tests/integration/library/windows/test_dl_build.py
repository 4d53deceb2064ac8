"""Build of dl: the same bytes from every folder, the interface and nothing else, usable by MSVC-targeting linkers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from aotforge.errors import RuntimeBuildError, ToolchainError
from aotforge.formats.pe import exports, imports
from aotforge.library.build_windows import build_dl
from aotforge.library.sources import DLFCN_VARIABLE, DlManifest
from tests.support.dl import PROGRAMS, dl_programs, missing_mingw
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
    again = build_dl(elsewhere, output=tmp_path / "again", cache=tmp_path, manifest=DlManifest(schema=1))
    first = dl_programs().dl
    assert {name for name, _ in again.digests} == {
        "include/dlfcn.h", "lib/dl.dll", "lib/dl.lib", "lib/libdl.a", "lib/libdl.dll.a",
    }  # fmt: skip
    for name, _ in again.digests:
        assert (again.folder / name).read_bytes() == (first / name).read_bytes(), name


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
        "clang-19", "--target=x86_64-pc-windows-msvc", "-c", "-O1", "-ffreestanding", "-fno-stack-protector", *flags,
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


def test_a_failed_build_leaves_the_earlier_one(tmp_path: Path) -> None:
    """The pin of an archive that is not there, then of one with other bytes."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "earlier").touch()
    pin = {"version": "1.4.2", "source": "not/there.tar.gz", "sha256": "0" * 64}
    manifest = DlManifest.model_validate({"schema": 1, "dlfcn_win32": pin})
    path = {"PATH": str(Path("/usr/bin"))}
    with pytest.raises(ToolchainError, match="cannot be fetched"):
        build_dl(ROOT, output=tmp_path / "out", cache=tmp_path, manifest=manifest, environment=path)
    (tmp_path / "other").write_text("other bytes")
    with pytest.raises(RuntimeBuildError, match="is not the pinned"):
        build_dl(
            ROOT, output=tmp_path / "out", cache=tmp_path, manifest=manifest,
            environment=path | {DLFCN_VARIABLE: str(tmp_path / "other")},
        )  # fmt: skip
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["earlier"]


def test_without_mingw_the_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="x86_64-w64-mingw32") as missing:
        build_dl(ROOT, output=tmp_path / "out", cache=tmp_path, environment={"PATH": str(tmp_path)})
    assert "g++-mingw-w64-x86-64-posix" in missing.value.hint
