"""The wheel of vgpu alone in a folder: its command, its API and its libamdhip64.so."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from aotforge.release.wheels import build_package
from tests.integration.vgpu.emulator.handwritten import assembly_text
from tests.support.families import PROJECT
from vgpu.cache import default_cache
from vgpu.emulator.assembly import assemble, link

pytestmark = pytest.mark.compiler
KERNEL = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    v_lshlrev_b32_e32 v1, 2, v0
    s_waitcnt lgkmcnt(0)
    global_load_dword v2, v1, s[4:5]
    s_waitcnt vmcnt(0)
    v_add_u32_e32 v2, 7, v2
    global_store_dword v1, v2, s[6:7]
"""
API = """
import sys
from pathlib import Path
import numpy as np
from vgpu.api import run
from vgpu.errors import ExecutionError

image, text = Path("k.hsaco").read_bytes(), Path("k.s").read_text()
x, y = np.arange(64, dtype=np.uint32), np.zeros(64, dtype=np.uint32)
report = run(image, text, grid=(1, 1, 1), arguments=[x, y], checks=True)
assert (y == x + 7).all() and report.workgroups == 1
try:
    run(image, text, grid=(1, 1, 1), arguments=[x, y[:32]])
except ExecutionError as error:
    print(error.what)
assert not [name for name in sys.modules if name.partition(".")[0] == "aotforge"]
"""
LOAD = """
import ctypes
hip = ctypes.CDLL("libamdhip64.so")
count = ctypes.c_int()
assert hip.hipGetDeviceCount(ctypes.byref(count)) == 0
print(count.value)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(build_package(PROJECT / "vgpu", tmp_path_factory.mktemp("wheel"))) as wheel:
        wheel.extractall(folder)
    return folder


@pytest.fixture
def files(tmp_path: Path) -> Path:
    text = assembly_text(KERNEL, "gfx908", threads=64)
    (tmp_path / "k.s").write_text(text)
    (tmp_path / "k.hsaco").write_bytes(link(assemble(text, "gfx908")))
    np.save(tmp_path / "x.npy", np.arange(64, dtype=np.uint32))
    return tmp_path


def _python(site: Path, folder: Path, *words: str, **variables: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(site), "AOTFORGE_CACHE": str(default_cache()), **variables}
    done = subprocess.run(
        [sys.executable, "-P", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_api_runs_a_code_object(site: Path, files: Path) -> None:
    assert "outside" in _python(site, files, "-c", API)


def test_the_command_runs_a_code_object(site: Path, files: Path) -> None:
    arguments = ("--arg", "in:x.npy", "--arg", "zero:u32:64:y.npy")
    printed = _python(site, files, "-m", "vgpu", "run", "k.hsaco", "--asm", "k.s", *arguments)
    assert "wave-instructions in 1 workgroups" in printed
    assert (np.load(files / "y.npy") == np.arange(64) + 7).all()
    assert "gfx908" in _python(site, files, "-m", "vgpu", "list")


def test_programs_find_the_virtual_hip(site: Path, tmp_path: Path) -> None:
    printed = _python(site, tmp_path, "-m", "vgpu", "env", "--arch", "MI100,gfx1100")
    script = f"{printed}\nexec {sys.executable} -c '{LOAD}'"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "2\n", done.stderr
