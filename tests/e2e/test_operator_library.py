"""A C program that `find_package(aotforge_ops)` links calls add on a virtual MI100 and on this processor; it is built without HIP and CUDA."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from aotforge.errors import ExecutorError
from aotforge.pipeline.verify_release import verify_release
from aotforge.targets.backends import unexecutable
from aotforge.virtual_gpu.hip.build_hip import build_virtual_hip, environment
from tests.e2e import cpu_calls
from tests.e2e.checkouts import HOME, ROOT, command

pytestmark = pytest.mark.compiler

CLIENT = ROOT / "tests" / "fixtures" / "clients" / "operators"
CASES = ("elementwise.add_dense", "rms_norm.rms_norm_rows", "softmax.softmax_rows", "flash.attn_fwd")
LACKS = unexecutable("cpu-x86-64-v3")
ARCHS = "gfx908" if LACKS else "gfx908,cpu-x86-64-v3"
needs_the_level = pytest.mark.skipif(bool(LACKS), reason=LACKS)


def run(*words: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        words, cwd=ROOT, env=os.environ | (env or {}), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unpacked release of the elementwise family for an MI100 and for processors, with the MI100's assembly texts in asm.tar.gz."""
    folder = tmp_path_factory.mktemp("operators")
    build = ("build", "--arch", ARCHS, "--only", "elementwise", "--profile", "smoke", "--quiet")
    run(*command(*build, "--output", str(folder / "dist")), env={"AOTFORGE_HOME": str(HOME)})
    (release,) = (path.parent for path in (folder / "dist").rglob("SHA256SUMS"))
    for archive in (*release.glob("*-rocm7.2-shared.tar.gz"), *release.glob("*-images-*.tar.gz")):
        (folder / "prefix").mkdir(exist_ok=True)
        run("tar", "-xzf", archive, "-C", folder / "prefix", "--strip-components", "1")
    (texts,) = release.glob("*-asm-amd-gfx908.tar.gz")
    shutil.copyfile(texts, folder / "asm.tar.gz")
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
    for device in ("rocm",) if LACKS else ("rocm", "cpu"):
        printed = run(tmp_path / "add", device, env=env)
        assert (
            printed
            == "add: 3 x 200 elements are right; refused: add: out: dtype float32 differs from float16 of input\n"
        )
    # without a driver the program skips, which the tests of lent GPUs rely on
    for words in ((tmp_path / "add", "cuda"), (tmp_path / "overhead",)):
        absent = subprocess.run(words, env=os.environ | {"LD_LIBRARY_PATH": ""}, check=False)
        assert absent.returncode in (0, 77)


@needs_the_level
def test_calls_on_this_processor(prefix: Path) -> None:
    assert run(sys.executable, "-m", "tests.e2e.cpu_calls", prefix).split() == [
        group.__name__ for group in cpu_calls.GROUPS
    ]


@needs_the_level
def test_processor_images_of_others_need_consent(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are loaded by the verifier's process: a planted constructor was executed."""
    (release,) = (path.parent for path in (prefix.parent / "dist").rglob("SHA256SUMS"))
    check = partial(verify_release, release, kernels_root=ROOT / "kernels", cache=HOME / "cache")
    with pytest.raises(ExecutorError, match=r"the images for processors of .* are not executed"):
        check()
    monkeypatch.setenv("AOTFORGE_SIGNING_KEY", "planted")
    with pytest.raises(ExecutorError, match="it could read AOTFORGE_SIGNING_KEY"):
        check(unsandboxed=True)
    check(archs=["cpu-x86-64-v3"], own=True).require_passed()


@needs_the_level
def test_a_pack_for_a_higher_level_is_refused_by_name(prefix: Path, tmp_path: Path) -> None:
    run(
        "cmake",
        "-G",
        "Ninja",
        "-S",
        CLIENT,
        "-B",
        tmp_path,
        f"-DCMAKE_PREFIX_PATH={prefix}",
        "-DOPERATORS=ops",
    )
    run("cmake", "--build", tmp_path, "--target", "add")
    done = subprocess.run(
        (tmp_path / "add", "cpu"), env=os.environ | {"AOTFORGE_CPU_LEVEL": "x86-64-v2"}, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.endswith("no image pack serves cpu-x86-64-v2: cpu-x86-64 is for cpu-x86-64-v3\n")


@pytest.mark.slow
@needs_the_level
def test_two_builds_of_every_level_are_identical_and_right(tmp_path: Path) -> None:
    archs = [arch for arch in ("cpu-x86-64-v3", "cpu-x86-64-v4") if not unexecutable(arch)]
    build = ("build", "--arch", ",".join(archs), "--only", ",".join(CASES), "--profile", "smoke", "--quiet")
    sums = []
    for name in ("one", "two"):
        cache = ("--cache", str(tmp_path / name / "cache"), "--output", str(tmp_path / name / "dist"))
        run(*command(*build, *cache), env={"AOTFORGE_HOME": str(HOME)})
        (found,) = (tmp_path / name / "dist").rglob("SHA256SUMS")
        sums.append(found.read_text())
    assert sums[0] == sums[1]
    release = found.parent
    run(*command("check", "--release", str(release), "--development"), env={"AOTFORGE_HOME": str(HOME)})
    for archive in (*release.glob("*-rocm7.2-shared.tar.gz"), *release.glob("*-images-*.tar.gz")):
        run("tar", "-xzf", archive, "-C", tmp_path, "--strip-components", "1")
    for arch in archs:
        level = {"AOTFORGE_CPU_LEVEL": arch.removeprefix("cpu-")}
        printed = run(sys.executable, "-m", "tests.e2e.cpu_cases", tmp_path, *CASES, env=level)
        assert [line.split(":")[0] for line in printed.splitlines()] == list(CASES)
