"""A C program that `find_package(aotforge_ops)` links calls add on a virtual MI100; it is built without HIP and CUDA."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from aotforge.virtual_gpu.hip.build_hip import build_virtual_hip, environment
from tests.e2e.checkouts import HOME, ROOT, command

pytestmark = pytest.mark.compiler

CLIENT = ROOT / "tests" / "fixtures" / "clients" / "operators"


def run(*words: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        words, cwd=ROOT, env=os.environ | (env or {}), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unpacked release of the elementwise family, with the assembly texts in asm.tar.gz."""
    folder = tmp_path_factory.mktemp("operators")
    build = ("build", "--arch", "gfx908", "--only", "elementwise", "--profile", "smoke", "--quiet")
    run(*command(*build, "--output", str(folder / "dist")), env={"AOTFORGE_HOME": str(HOME)})
    (release,) = (path.parent for path in (folder / "dist").rglob("SHA256SUMS"))
    for pattern in ("*-rocm7.2-shared.tar.gz", "*-images-amd-gfx908.tar.gz"):
        (folder / "prefix").mkdir(exist_ok=True)
        (archive,) = release.glob(pattern)
        run("tar", "-xzf", archive, "-C", folder / "prefix", "--strip-components", "1")
    (texts,) = release.glob("*-asm-amd-gfx908.tar.gz")
    texts.rename(folder / "asm.tar.gz")
    return folder / "prefix"


@pytest.mark.parametrize("target", ["ops", "ops_static"])
def test_a_c_program_adds_on_a_virtual_mi100(prefix: Path, target: str, tmp_path: Path) -> None:
    settings = (f"-DCMAKE_PREFIX_PATH={prefix}", f"-DOPERATORS={target}")
    run("cmake", "-G", "Ninja", "-S", CLIENT, "-B", tmp_path, *settings)
    run("cmake", "--build", tmp_path)
    virtual = build_virtual_hip(HOME / "cache")
    texts = [prefix.parent / "asm.tar.gz"]
    env = environment(virtual, devices=["gfx908"], texts=texts, cache=HOME / "cache")
    if target == "ops_static":  # packs are expected beside the program
        env["AOTRITON_IMAGES_DIR"] = str(prefix / "lib" / "aotriton.images")
    printed = run(tmp_path / "add", "rocm", env=env)
    assert (
        printed
        == "add: 3 x 200 elements are right; refused: add: out: dtype float32 differs from float16 of input\n"
    )
    # without a driver the program skips, which the tests of lent GPUs rely on
    for words in ((tmp_path / "add", "cuda"), (tmp_path / "overhead",)):
        absent = subprocess.run(words, env=os.environ | {"LD_LIBRARY_PATH": ""}, check=False)
        assert absent.returncode in (0, 77)
