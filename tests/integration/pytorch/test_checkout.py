"""PyTorch's own ROCm attention as a client: files of a checkout run on a virtual MI100, and its gates,
wrappers and autograd call the library.

AOTFORGE_PYTORCH names a checkout of the release that is installed (its CPU wheel); submodules are not needed.
Releases before 2.13 call API level 0.11, later ones 0.13.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aotforge.base.architectures import load_profiles
from tests.support.runtime import CACHE, ROOT, build_objects
from vgpu.hip.build_hip import build_virtual_hip

from .checkout import Build, prepare
from .grids import minor_of
from .stack import pack, profile_plan
from .wheel import FIXTURES, compile_with_pytorch

pytestmark = [pytest.mark.compiler, pytest.mark.torch, pytest.mark.slow]
WORKER = Path(__file__).with_name("checkout_worker.py")


@pytest.fixture(scope="module")
def checkout() -> Path:
    pytest.importorskip("torch")
    place = os.environ.get("AOTFORGE_PYTORCH")
    if not place:
        pytest.skip("needs AOTFORGE_PYTORCH")
    return Path(place)


@pytest.fixture(scope="module")
def tree(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(checkout, tmp_path_factory.mktemp("pytorch"))


@pytest.mark.parametrize("profile", [None, "full"], ids=["default", "full"])
@pytest.mark.timeout(4 * 3600)
def test_pytorchs_own_attention(profile: str | None, checkout: Path, tree: Path, tmp_path: Path) -> None:
    """Every call within its bound, and gates that let through what the pack serves, which is all."""
    release = tuple(int(word) for word in (checkout / "version.txt").read_text().split(".")[:2])
    level = "0.11.2b" if release < (2, 13) else "0.13b"
    lines = run(level, profile, tree, tmp_path)
    answers = next(line["answers"] for line in lines if line["group"] == "gates")
    assert answers.pop("check_gpu") == 0
    assert answers == {name: expected(name) for name in answers}
    found = [line for line in lines if line["group"] != "gates"]
    assert [line for line in found if not line["share"] <= 1] == []
    sys.stderr.write(f"{level}: {len(found)} calls, worst share {max(line['share'] for line in found):.3f}\n")


def expected(name: str) -> list[bool | int]:
    """What the gates answer for a pack that serves every call, by the name of gates()."""
    dtype, width = name.split()
    flash, efficient = dtype != "float32", int(width) % 8 == 0
    return [flash, efficient, 1 if flash else 2 if efficient else 0]


def run(level: str, profile: str | None, tree: Path, folder: Path) -> list[dict[str, Any]]:
    """Lines of the worker."""
    virtual, objects = build_virtual_hip(CACHE), build_objects().at(level)
    device = compile_with_pytorch([FIXTURES / "device.cpp"], folder / "device.so", [str(virtual.library)])
    pytorch = Build(tree, objects, folder / "build").library(objects, virtual)
    environment = pack([profile_plan(profile, load_profiles(ROOT / "manifests"))], virtual, folder)
    done = subprocess.run(
        [sys.executable, str(WORKER), str(device), str(pytorch), str(minor_of(level))],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    return [json.loads(line) for line in done.stdout.splitlines()]
