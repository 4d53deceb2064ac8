"""A C program, built without HIP and CUDA, calls add on a virtual MI100 and on this processor."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aotforge.base.architectures import Profile
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.library.build_linux import build_runtime
from aotforge.library.library_build import LibraryRequest
from aotforge.pack.writer import write_pack
from aotforge.plan.model import Plan
from aotforge.targets.backends import unexecutable
from tests.e2e import cpu_calls
from tests.e2e.checkouts import HOME, ROOT, command
from tests.integration.release.standin import MANIFEST
from tests.support.families import architectures, plan_of
from vgpu.hip.build_hip import build_virtual_hip, environment

pytestmark = pytest.mark.compiler

HF_KERNELS = os.environ.get("AOTFORGE_HF_KERNELS", "")
CLIENT = ROOT / "tests" / "fixtures" / "clients" / "operators"
KERNELS = ROOT / "kernels"
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
    """An unpacked release for an MI100 and for processors, with assembly texts in asm.tar.gz."""
    folder = tmp_path_factory.mktemp("operators")
    build = ("build", "--arch", ARCHS, "--only", "elementwise", "--profile", "smoke", "--quiet")
    run(*command(*build, "--output", str(folder / "dist")), env={"AOTFORGE_HOME": str(HOME)})
    (release,) = (path.parent for path in (folder / "dist").rglob("SHA256SUMS"))
    run(*command("wheel", "--hf-kernel", str(release)), env={"AOTFORGE_HOME": str(HOME)})
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
        refused = "add: out: dtype float32 differs from float16 of input\n"
        assert printed == f"add: 3 x 200 elements are right; refused: {refused}"
    # without a driver the program skips, which the tests of lent GPUs rely on
    for words in ((tmp_path / "add", "cuda"), (tmp_path / "overhead",)):
        absent = subprocess.run(words, env=os.environ | {"LD_LIBRARY_PATH": ""}, check=False)
        assert absent.returncode in (0, 77)


@pytest.fixture(scope="module")
def package(prefix: Path) -> Path:
    """The release as a package for Hugging Face's kernels."""
    (found,) = (prefix.parent / "dist").glob("*-hf-kernel")
    return found


@pytest.mark.skipif(importlib.util.find_spec("tvm_ffi") is None, reason="needs apache-tvm-ffi")
@pytest.mark.parametrize(
    ("build", "device"),
    [
        pytest.param("rocm72", "rocm", marks=pytest.mark.slow),
        pytest.param("cpu", "cpu", marks=needs_the_level),
    ],
)
def test_variants_for_hugging_face_work_as_links_to_a_cache(
    package: Path, build: str, device: str, tmp_path: Path
) -> None:
    """A cache of the Hub has files by their digests, and a snapshot of links to them."""
    source = package / "build" / f"tvm-ffi01-{build}-x86_64-linux"
    variant = tmp_path / "snapshots" / source.name
    for number, file in enumerate(path for path in source.rglob("*") if path.is_file()):
        blob, link = tmp_path / "blobs" / str(number), variant / file.relative_to(source)
        for folder in (blob.parent, link.parent):
            folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, blob)
        link.symlink_to(os.path.relpath(blob, link.parent))
    env = environment(
        build_virtual_hip(HOME / "cache"),
        devices=["gfx908"],
        texts=[package.parents[1] / "asm.tar.gz"],
        cache=HOME / "cache",
    )
    printed = run(sys.executable, "-m", "tests.support.hf_kernel_calls", variant, device, env=env)
    refused = "add: out: shape (70) is not (3, 70), to which the inputs broadcast"
    assert printed.splitlines() == ["True", refused]


@pytest.mark.skipif(not HF_KERNELS, reason="needs AOTFORGE_HF_KERNELS: a Python with kernels")
@needs_the_level
def test_hugging_face_loads_the_package(package: Path) -> None:
    """The real client: its reader of metadata, its digests, its choice of a variant, its import."""
    script = """if True:
        import sys
        from pathlib import Path
        import numpy as np
        from kernels import get_local_kernel
        from kernels._rust import Digest, Metadata
        for variant in sorted((Path(sys.argv[1]) / "build").iterdir()):
            metadata = Metadata.read_from_file(variant / "metadata.json")
            metadata.digest.validate(Digest.hash_variant(metadata.digest.algorithm, variant))
            assert metadata.backend.archs == (["gfx908"] if "rocm" in variant.name else None)
        module = get_local_kernel(Path(sys.argv[1]), backend="cpu")
        x = np.arange(140, dtype=np.float16)
        out = module.add(x[:70], x[::2], 0.5, np.empty(70, np.float16))
        print((out == x[:70] + np.float16(0.5) * x[::2]).all())
    """
    done = subprocess.run(
        (HF_KERNELS, "-c", script, package), cwd=package, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


@needs_the_level
def test_calls_on_this_processor(prefix: Path) -> None:
    assert run(sys.executable, "-m", "tests.e2e.cpu_calls", prefix).split() == [
        group.__name__ for group in cpu_calls.GROUPS
    ]


@needs_the_level
def test_a_pack_for_a_higher_level_is_refused_by_name(prefix: Path, tmp_path: Path) -> None:
    settings = (f"-DCMAKE_PREFIX_PATH={prefix}", "-DOPERATORS=ops")
    run("cmake", "-G", "Ninja", "-S", CLIENT, "-B", tmp_path, *settings)
    run("cmake", "--build", tmp_path, "--target", "add")
    done = subprocess.run(
        (tmp_path / "add", "cpu"), env=os.environ | {"AOTFORGE_CPU_LEVEL": "x86-64-v2"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.endswith("no image pack serves cpu-x86-64-v2: cpu-x86-64 is for cpu-x86-64-v3\n")


@pytest.mark.slow
@needs_the_level
def test_a_release_for_both_passes_its_check(tmp_path: Path) -> None:
    home = {"AOTFORGE_HOME": str(HOME)}
    words = ("build", "--arch", ARCHS, "--profile", "smoke", "--quiet", "--output", str(tmp_path))
    run(*command(*words), env=home)
    (release,) = (path.parent for path in tmp_path.rglob("SHA256SUMS"))
    run(*command("check", "--release", str(release), "--development"), env=home)


def _compiled_anew(plan: Plan, cache: Path) -> dict[str, bytes]:
    """Every image of a plan, compiled into a new cache, by its label."""
    with Cache(cache) as opened:
        images = compile_plan(plan, kernels_root=KERNELS, architectures=architectures(), cache=opened)
    return {job.label: images[job.key].binary for job in plan.jobs}


@pytest.mark.slow
@needs_the_level
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4", "x86-64-v4-bf16"])
def test_two_builds_of_every_family_are_identical_and_right(level: str, tmp_path: Path) -> None:
    if reason := unexecutable(f"cpu-{level}"):
        pytest.skip(reason)
    smallest = Profile(
        description="of every kernel", complete=False,
        keep={"dtype": ("fp16",), "width": (32,), "row": ("any",), "flash.dropout": (False,)},
    )  # fmt: skip
    plan = plan_of(KERNELS, arch=f"cpu-{level}", own=smallest)
    builds = [_compiled_anew(plan, tmp_path / name) for name in ("one", "two")]
    assert builds[0] == builds[1]
    families = {"add", "elementwise", "flash", "gemm", "rms_norm", "softmax"}
    assert {label.split(".")[0] for label in builds[0]} == families
    with Cache(tmp_path / "one") as opened:
        images = compile_plan(plan, kernels_root=KERNELS, architectures=architectures(), cache=opened)
    pack = write_pack(plan, list(images.values()), release=MANIFEST.name, compressor=MANIFEST.compressor)
    place = tmp_path / "lib" / "aotriton.images" / pack.name
    place.mkdir(parents=True)
    for name, data in pack.files.items():
        (place / name).write_bytes(data)
    built = (
        build_runtime(LibraryRequest(root=ROOT, cache=HOME / "cache")).prefix / "lib" / "libaotriton_v2.so"
    )
    shutil.copyfile(built, tmp_path / "lib" / "libaotriton_v2.so")
    printed = run(
        sys.executable, "-m", "tests.e2e.cpu_cases", tmp_path, *CASES, env={"AOTFORGE_CPU_LEVEL": level}
    )
    assert [line.split(":")[0] for line in printed.splitlines()] == list(CASES)
