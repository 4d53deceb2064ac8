"""A library under two names: a forwarder shares its state, a copy does not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aotforge.formats.pe import exports, imports
from aotforge.library.forwarder import Forwarder, build_forwarder
from tests.support.dl import compile_c, missing_mingw
from tests.support.runtime import ROOT
from tests.support.wine import Wine

pytestmark = pytest.mark.skipif(bool(missing_mingw()), reason=missing_mingw())

_LIBRARY = """
__declspec(dllexport) int calls = 40;
__declspec(dllexport) int count(void) { return ++calls; }
"""
# one name of the library is MSVC's for `int aotriton::v3::count()`, as the real one exports them
_NAMES = 'EXPORTS\n  calls DATA\n  count\n  "?count@v3@aotriton@@YAHXZ" = count\n'
_OLD_CLIENT = """
__declspec(dllimport) extern int calls;
__declspec(dllimport) int count(void);
__declspec(dllexport) int old_count(void) { count(); return calls; }
"""
_PROGRAM = """
#include <stdio.h>
#include <windows.h>
__declspec(dllimport) int count(void);
__declspec(dllimport) int old_count(void);
int main(int words, char **word) {
  int first = old_count(), second = count(), third = old_count();
  HMODULE old = GetModuleHandleA(word[words - 1]);
  int (*mangled)(void) = (int (*)(void))(ULONG_PTR)GetProcAddress(old, "?count@v3@aotriton@@YAHXZ");
  printf("%d %d %d %d\\n", first, second, third, mangled());
  return 0;
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (
        ("lib.c", _LIBRARY),
        ("lib.def", _NAMES),
        ("old.c", _OLD_CLIENT),
        ("program.c", _PROGRAM),
    ):
        (tmp_path / name).write_text(text)
    library, gnu = tmp_path / "aotriton_v2.dll", tmp_path / "libaotriton_v2.dll.a"
    compile_c("-shared", tmp_path / "lib.c", tmp_path / "lib.def", f"-Wl,--out-implib,{gnu}", "-o", library)
    return tmp_path


def run_both(wine: Wine, folder: Path, forwarder: Forwarder) -> list[int]:
    """Counts seen through the old name, the new one, the old one again, and the mangled name of the old
    one."""
    old = folder / "old_client.dll"
    compile_c("-shared", folder / "old.c", forwarder.gnu, f"-Wl,--out-implib,{folder / 'old.a'}", "-o", old)
    program = folder / "program.exe"
    compile_c(folder / "program.c", folder / "old.a", folder / "libaotriton_v2.dll.a", "-o", program)
    assert forwarder.module.name.upper() in imports(old.read_bytes())
    done = wine.run(program, forwarder.module.name, folder=folder)
    assert done.returncode == 0, done.stderr
    return [int(number) for number in done.stdout.split()]


def test_old_and_new_name_share_one_state(wine: Wine, folder: Path) -> None:
    made = build_forwarder(folder / "aotriton_v2.dll", name="libaotriton_v2-old.dll", output=folder)
    assert run_both(wine, folder, made) == [41, 42, 43, 44]
    shutil.copy(folder / "aotriton_v2.dll", made.module)
    done = wine.run(folder / "program.exe", made.module.name, folder=folder)
    assert done.stdout.split() == ["41", "41", "42", "43"]  # what a copy would do: two counters


def test_a_forwarder_has_names_and_nothing_else(folder: Path) -> None:
    made = build_forwarder(folder / "aotriton_v2.dll", name="older.dll", output=folder / "one")
    data = made.module.read_bytes()
    assert {export.forward for export in exports(data)} == {f"aotriton_v2.{name}" for name in made.names}
    assert set(made.names) == {"calls", "count", "?count@v3@aotriton@@YAHXZ"} and imports(data) == ()
    again = build_forwarder(folder / "aotriton_v2.dll", name="older.dll", output=folder / "two")
    for name in ("module", "msvc", "gnu"):
        assert getattr(made, name).read_bytes() == getattr(again, name).read_bytes(), name


def test_the_task_makes_one_or_reports_why_not(folder: Path) -> None:
    command = [
        sys.executable,
        "tasks.py",
        "build.windows",
        "--forward",
        str(folder / "aotriton_v2.dll"),
        "--json",
        "--name",
    ]

    def run(name: str) -> tuple[int, dict[str, object]]:
        done = subprocess.run(
            [*command, name], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
        )
        return done.returncode, json.loads(done.stdout)

    code, answer = run("libaotriton_v2.dll")
    assert code == 0 and answer == {
        "files": [
            str(folder / name)
            for name in ("libaotriton_v2.dll", "libaotriton_v2.lib", "liblibaotriton_v2.dll.a")
        ],
        "names": 3,
    }
    code, answer = run("aotriton_v2.0.11.dll")
    assert code == 2 and "cannot take part" in str(answer)
    (folder / "aotriton_v2.dll").write_text("no module")
    assert run("older.dll")[0] == 1
