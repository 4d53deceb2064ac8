"""dl's functions under Wine: the same programs for aotforge's dl, as DLL and static, and for the original."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from aotforge.errors import RuntimeBuildError
from tests.support.dl import ORIGINAL_VARIABLE, DlPrograms, dl_programs, missing_mingw, original_programs
from tests.support.wine import Wine

pytestmark = pytest.mark.skipif(bool(missing_mingw()), reason=missing_mingw())

# a module that dl opens has its own copy of a static dl, with lists of its own
STATIC = {"next_skips_local", "next_of_last"}
# 1.4.2 under Wine leaves the explanation after the name empty
ORIGINAL = {"explained"}


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


def test_the_original_passes_the_same_program(wine: Wine) -> None:
    original = original_programs()
    assert failures(wine, original, "interface")[0] == ORIGINAL
    assert failures(wine, original, "interface_static")[0] == ORIGINAL | STATIC


def test_another_archive_than_the_original_is_not_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """.ci/run takes a file above the checkout, where another user may write."""
    archive = tmp_path / "dlfcn-win32-1.4.2.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("src/dlfcn.c", "src/dlfcn.h"):
            tar.addfile(tarfile.TarInfo(f"dlfcn-win32-1.4.2/{name}"))
    monkeypatch.setenv(ORIGINAL_VARIABLE, str(archive))
    with pytest.raises(RuntimeBuildError, match=r"is not the pinned dlfcn-win32-1\.4\.2\.tar\.gz"):
        original_programs(tmp_path / "built")


_STANDIN = r"""
#include <windows.h>
#include "dlfcn.h"
static char error[64];
static int failed;
void *dlopen(const char *file, int mode) {
  void *module = file == NULL ? GetModuleHandleA(NULL) : LoadLibraryA(file);
  failed = module == NULL;
  lstrcpyA(error, "stand-in");
  return mode < 0 ? NULL : module;
}
int dlclose(void *handle) { return !FreeLibrary(handle); }
void *dlsym(void *handle, const char *name) { return (void *)(ULONG_PTR)GetProcAddress(handle, name); }
char *dlerror(void) { return failed ? error : NULL; }
int dladdr(const void *addr, Dl_info *info) {
  static char name[MAX_PATH];
  HMODULE module;
  if (!GetModuleHandleExA(6, addr, &module)) return 0;
  GetModuleFileNameA(module, name, sizeof name);
  *info = (Dl_info){name, module, NULL, NULL};
  return 1;
}
"""


def test_another_archive_is_built_instead(wine: Wine, tmp_path: Path) -> None:
    """A stand-in with the layout of dlfcn-win32's archive: what is built and run is its code."""
    header = (Path(__file__).parents[4] / "runtime" / "dl" / "dlfcn.h").read_text()
    marked = f"#ifdef DLFCN_WIN32_SHARED\n#define DLFCN_WIN32_EXPORTS\n#endif\n{_STANDIN}"
    archive = tmp_path / "dlfcn-win32-1.4.2.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, text in (("src/dlfcn.c", marked), ("src/dlfcn.h", header), ("COPYING", "as you like\n")):
            info = tarfile.TarInfo(f"dlfcn-win32-1.4.2/{name}")
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    standin = dl_programs(archive, folder=tmp_path / "built", programs=("paths",))
    assert (standin.dl / "licences" / "dlfcn-win32.txt").read_text() == "as you like\n"
    done = wine.run(
        standin.program("paths"), "utf8", "plug_a.dll", "-", "utf8", "none.dll", "-", folder=standin.folder
    )
    assert "which 1\n" in done.stdout and "error stand-in\n" in done.stdout, (done.stdout, done.stderr)
