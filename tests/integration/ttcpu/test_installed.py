"""The back end as an installed package: Triton finds it by its entry point, and it does nothing until it is
enabled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from aotforge.release.wheels import build_package

pytestmark = [pytest.mark.compiler, pytest.mark.torch]
ROOT = Path(__file__).parents[3]
SCRIPT = """
import torch
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


x, y = torch.randn(1000, device=DEVICE), torch.randn(1000, device=DEVICE)
out = torch.empty_like(x)
compiled = add[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, y, out, 1000, BLOCK=256)
assert torch.equal(out, x + y)
with getattr(torch, DEVICE.type).stream(None):
    getattr(torch, DEVICE.type).set_stream(None)
print(DEVICE, "so" in compiled.asm if compiled else "interpreted")
"""
INACTIVE = """
import json, sys
import triton
from triton.backends import backends

ours = [name for name in sys.modules if name.partition(".")[0] in ("aotforge", "vgpu", "ttcpu")]
print(json.dumps([sorted(backends), backends["cpu"].driver.is_active(), ours, "torch" in sys.modules]))
"""
AT_IMPORT = {f"ttcpu{name}" for name in ("", ".compiler", ".driver", ".errors", ".launch", ".levels")}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of ttcpu, and nothing else of this project."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(build_package(ROOT / "ttcpu", tmp_path_factory.mktemp("wheel"))) as wheel:
        wheel.extractall(folder)
    return folder


def _run(script: str, folder: Path, *places: Path, **environment: str) -> str:
    (folder / "script.py").write_text(script)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    paths = {"PYTHONPATH": os.pathsep.join(map(str, places)), "TRITON_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "script.py"], capture_output=True, text=True, check=False, cwd=folder,
        env={**clean, **paths, "TRITON_DEFAULT_FP_FUSION": "1", **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_environment_variable_enables_it_for_an_unmodified_script(tmp_path: Path, site: Path) -> None:
    assert _run(SCRIPT, tmp_path, site, TRITON_CPU_BACKEND="1") == "cpu True"


def test_the_interpreter_works_beside_it(tmp_path: Path, site: Path) -> None:
    found = _run(SCRIPT, tmp_path, site, TRITON_CPU_BACKEND="1", TRITON_INTERPRET="1")
    assert found == "cpu interpreted"


def test_without_the_variable_it_is_not_active_and_nothing_heavy_is_imported(
    tmp_path: Path, site: Path
) -> None:
    found, active, modules, torch = json.loads(_run(INACTIVE, tmp_path, site))
    assert found == ["amd", "cpu", "nvidia"]
    assert set(modules) == AT_IMPORT
    assert not active
    assert not torch
