"""A library that is loaded before PyTorch on Windows, under Wine: later DLLs that import its name get it,
wherever they are.

`torch_hip.dll` and a stand-in of its own library are in torch/lib, and are loaded as `import torch` loads
them.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from aotforge.formats.wheel import read_wheel
from aotforge.library.build_tools import find_windows_tools
from aotforge.release.model import load_release_manifest
from aotforge.release.wheels import write_windows_wheel
from tests.support.runtime import ROOT
from tests.support.windows import DLL, WindowsObjects, run
from tests.support.wine import Wine, windows_path

OWN = 77
ORIGINAL = f"""
__declspec(dllexport) int aotforge_launch(const char* op, const void* values, size_t count, int device,
    void* stream) {{
  return {OWN};
}}
"""
TORCH = """
#include <aotforge/launch.h>
#include <windows.h>
#include <stdio.h>

__declspec(dllexport) int probe(void) {
  aotforge_value values[4] = {{"x"}, {"y"}, {"out"}, {"n"}};
  char path[4096];
  HMODULE module;
  int n;
  for (n = 0; n < 3; ++n) values[n].as.ptr = (void*)(size_t)(0x10000 * (n + 1));
  values[3].type = AOTFORGE_I32;
  values[3].as.i32 = 5000;
  n = aotforge_launch("add", values, 4, AOTFORGE_HIP, NULL);
  module = GetModuleHandleA("aotriton_v2.dll");
  GetModuleFileNameA(module, path, sizeof path);
  printf("%d %s\\n", n, path);
  return 0;
}
"""
PROGRAM = """
#include <windows.h>
#include <stdio.h>

/* Arguments: DLLs to load, as PyTorch does (LOAD_LIBRARY_SEARCH_DEFAULT_DIRS and ..._DLL_LOAD_DIR);
 * the last one has probe. */
int main(int count, char** words) {
  HMODULE last = NULL;
  int (*probe)(void);
  for (int n = 1; n < count; ++n) {
    last = LoadLibraryExA(words[n], NULL, 0x1100);
    if (last == NULL) return printf("%s: error %lu\\n", words[n], GetLastError()), 1;
  }
  probe = (int (*)(void))(void*)GetProcAddress(last, "probe");
  return probe == NULL || probe();
}
"""


@pytest.fixture(scope="module")
def torch(windows: WindowsObjects, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with program.exe and torch/lib."""
    folder = tmp_path_factory.mktemp("torch")
    lib = folder / "torch" / "lib"
    lib.mkdir(parents=True)
    compiler = str(find_windows_tools(os.environ).cc)
    include = f"-I{windows.runtime.prefix / 'include'}"

    def compile_(source: str, output: Path, *words: str) -> None:
        command = [
            compiler,
            "-O1",
            "-static",
            include,
            "-x",
            "c",
            "-",
            "-x",
            "none",
            *words,
            "-o",
            str(output),
        ]
        subprocess.run(command, input=source.encode(), check=True)

    compile_(ORIGINAL.replace("size_t", "unsigned long long"), lib / DLL, "-shared")
    compile_(
        TORCH, lib / "torch_hip.dll", "-shared", str(windows.runtime.prefix / "lib" / "libaotriton_v2.dll.a")
    )
    compile_(PROGRAM, folder / "program.exe")
    return folder


def loaded(wine: Wine, windows: WindowsObjects, torch: Path, *first: Path) -> tuple[int, str]:
    """What the call in torch_hip.dll returns, and the path of the library that served it."""
    words = [windows_path(path) for path in (*first, torch / "torch" / "lib" / "torch_hip.dll")]
    done = run(wine, torch / "program.exe", *words, hip=windows.hip(7))
    assert done.returncode == 0, (done.stdout, done.stderr)
    number, path = done.stdout.strip().split(" ", 1)
    return int(number), path


@pytest.mark.slow  # Wine, and programs of its own
def test_a_library_that_is_loaded_first_serves_pytorch(
    wine: Wine,
    windows: WindowsObjects,
    torch: Path,
    pack: Path,
    tmp_path: Path,
) -> None:
    original = torch / "torch" / "lib" / DLL
    assert loaded(wine, windows, torch) == (OWN, windows_path(original))
    folder = windows.place(tmp_path / "site-packages" / "aotforge_attention" / "lib")
    shutil.copytree(pack, folder / "aotriton.images")
    assert loaded(wine, windows, torch, folder / DLL) == (0, windows_path(folder / DLL))
    # PyTorch loads every DLL of its folder by its path
    assert loaded(wine, windows, torch, folder / DLL, original) == (0, windows_path(folder / DLL))
    shutil.rmtree(folder / "aotriton.images")
    number, path = loaded(wine, windows, torch, folder / DLL)
    assert number not in (0, OWN) and path == windows_path(folder / DLL)  # ours, without images
    original.rename(original.with_name("away"))
    assert loaded(wine, windows, torch, folder / DLL)[1] == windows_path(folder / DLL)
    original.with_name("away").rename(original)


@pytest.mark.slow  # Wine, and programs of its own
def test_pytorch_uses_what_was_dropped_in(
    wine: Wine, windows: WindowsObjects, torch: Path, pack: Path, tmp_path: Path
) -> None:
    """Images of its own for the same arch lie beside ours."""
    copy = shutil.copytree(torch, tmp_path / "copy")
    lib = copy / "torch" / "lib"
    (lib / "aotriton.images" / "amd-gfx908" / "flash").mkdir(parents=True)
    config = Path("include", "aotriton", "config.h")
    (lib.parent / config.parent).mkdir(parents=True)
    shutil.copy(windows.runtime.prefix / config, lib.parent / config)
    windows.place(tmp_path / "aotriton" / "lib")
    shutil.copytree(pack, tmp_path / "aotriton" / "lib" / "aotriton.images")
    (tmp_path / "aotriton" / "bin").mkdir()
    program = tmp_path / "aotriton" / "bin" / "dropin.exe"
    shutil.copy(windows.runtime.prefix / "bin" / "dropin.exe", program)
    assert run(wine, program, windows_path(copy), hip=None).returncode == 0
    assert loaded(wine, windows, copy) == (0, windows_path(lib / DLL))
    assert run(wine, program, "--undo", windows_path(copy), hip=None).returncode == 0
    assert loaded(wine, windows, copy) == (OWN, windows_path(lib / DLL))


@pytest.mark.slow
def test_the_wheel_is_laid_out_for_it(
    wine: Wine, windows: WindowsObjects, torch: Path, pack: Path, tmp_path: Path
) -> None:
    """Unpacked as pip does it, with the images of another wheel."""
    manifest = load_release_manifest(ROOT / "manifests" / "release.yaml")
    files = {name: (windows.runtime.prefix / name).read_bytes() for name in windows.runtime.digests}
    files["share/licenses/aotriton/LICENSE"] = b"MIT"
    wheel = write_windows_wheel(tmp_path, manifest, {"amd-gfx908": ["gfx908"]}, files, epoch=0)
    for name, data in read_wheel(wheel).items():
        (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / name).write_bytes(data)
    folder = tmp_path / "site" / "aotforge_attention" / "lib"
    shutil.copytree(pack, folder / "aotriton.images")
    assert loaded(wine, windows, torch, folder / DLL) == (0, windows_path(folder / DLL))
    facts = runpy.run_path(str(folder.parent / "release_facts.py"))
    assert (facts["NAMES"], facts["PACKS"]) == ((DLL,), {"gfx908": "amd-gfx908"})
