"""The back end as an installed package: Triton finds it by its entry point, and it does nothing until it is enabled."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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

ours = [name for name in sys.modules if name.startswith("aotforge.")]
print(json.dumps([sorted(backends), backends["cpu"].driver.is_active(), ours, "torch" in sys.modules]))
"""
AT_IMPORT = {
    "aotforge.errors",
    "aotforge.targets",
    "aotforge.base",
    "aotforge.base.files",
} | {f"ttcpu{name}" for name in ("", ".compiler", ".driver", ".launch", ".levels")}


def _install(folder: Path) -> None:
    """What pip writes for the entry points, without its minute of work."""
    metadata = folder / "aotforge-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: aotforge\nVersion: 0\n")
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    lines = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in found.items())
        for group, found in points.items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))


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


def test_an_environment_variable_enables_it_for_an_unmodified_script(tmp_path: Path) -> None:
    _install(tmp_path / "site")
    assert _run(SCRIPT, tmp_path, tmp_path / "site", ROOT, TRITON_CPU_BACKEND="1") == "cpu True"


def test_the_interpreter_works_beside_it(tmp_path: Path) -> None:
    _install(tmp_path / "site")
    found = _run(SCRIPT, tmp_path, tmp_path / "site", ROOT, TRITON_CPU_BACKEND="1", TRITON_INTERPRET="1")
    assert found == "cpu interpreted"


def test_without_the_variable_it_is_not_active_and_nothing_heavy_is_imported(tmp_path: Path) -> None:
    _install(tmp_path / "site")
    found, active, modules, torch = json.loads(_run(INACTIVE, tmp_path, tmp_path / "site", ROOT))
    assert found == ["amd", "cpu", "nvidia"]
    assert set(modules) == AT_IMPORT
    assert not active
    assert not torch


@pytest.mark.slow
def test_pip_installs_it(tmp_path: Path) -> None:
    """The builder of the wheel is in the sources: no package index is needed."""
    source = tmp_path / "source"
    for name in ("aotforge", "vgpu", "ttcpu"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):  # the data of other tasks may be missing
        shutil.copy(ROOT / name, source)
    site = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site)]
    subprocess.run([*command, str(source)], check=True, cwd=tmp_path)
    assert _run(SCRIPT, tmp_path, site, TRITON_CPU_BACKEND="1") == "cpu True"
