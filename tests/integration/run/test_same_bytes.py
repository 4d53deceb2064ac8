"""Images and library have the same bytes in every runner, built twice; faults in a rootfs are reported."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aotforge.base.architectures import load_architectures
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.pool import WorkerLimits
from aotforge.compile.remote import rootfs_toolchain
from aotforge.errors import CompileError, LimitError, RuntimeBuildError
from aotforge.formats.archive import input_tree, sha256_file
from aotforge.library.build_linux import build_runtime
from aotforge.library.library_build import LibraryRequest
from aotforge.release.platform_tag import measure_platform_tag
from aotforge.run.step import ExecutionTarget, Step, StepLimits
from aotforge.toolchain.triton import pinned_triton, read_toolchain
from tests.integration.compile.builds import build, entries
from tests.support.families import KERNEL, plan_of, write_family, write_many
from tests.support.rootfs import CACHE, ROOT, SANDBOXED, target

pytestmark = pytest.mark.compiler


def compile_in(execution: ExecutionTarget, root: Path, folder: Path, **options: object) -> None:
    with Cache(folder) as cache:
        compile_plan(
            plan_of(root),
            kernels_root=root,
            architectures=load_architectures(ROOT / "manifests"),
            cache=cache,
            execution=execution,
            **options,  # type: ignore[arg-type]
        )


@pytest.mark.parametrize("name", SANDBOXED)
def test_images_are_those_of_this_machine(name: str, tmp_path: Path) -> None:
    root = write_many(tmp_path / "k", 2)
    build(root, tmp_path / "here")
    execution = target(name, tmp_path, "rocm-kernels")
    for again in ("first", "second"):
        compile_in(execution, root, tmp_path / again)
        assert entries(tmp_path / again) == entries(tmp_path / "here") != {}
    pinned = pinned_triton(ROOT / "requirements" / "build.in")
    assert rootfs_toolchain(execution, pinned, cache=tmp_path) == read_toolchain(pinned)


def copy_sources(folder: Path) -> Path:
    for part in ("runtime", "manifests", "kernels"):
        shutil.copytree(ROOT / part, folder / part)
    return folder


@pytest.mark.parametrize(
    "names", [("docker", "bubblewrap"), pytest.param((*SANDBOXED, "bubblewrap"), marks=pytest.mark.slow)]
)
def test_every_runner_builds_one_library_from_any_clone(names: tuple[str, ...], tmp_path: Path) -> None:
    """This machine's own compiler is another one: its library has other bytes."""
    digests = set()
    for number, name in enumerate(names):
        checkout = copy_sources(tmp_path / f"clone {number}" / ("x" * 10 * number) / "wörk")
        cache = tmp_path / f"cache-{number}"
        shutil.copytree(CACHE / "sources", cache / "sources")
        request = LibraryRequest(
            root=checkout, cache=cache, execution=target(name, tmp_path / "runs", "rocm-runtime")
        )
        built = build_runtime(request)
        assert built.fresh
        digests.add(sha256_file(built.library))
    assert len(digests) == 1
    tag = measure_platform_tag(built.library, promised="manylinux_2_28")
    assert tag.reaches and built.compiler.startswith("c++ (Debian 10")
    load = (
        "import ctypes, sys, os; ctypes.CDLL(sys.argv[1]).aotforge_launch; "
        "print(*os.confstr('CS_GNU_LIBC_VERSION').split())"
    )
    execution = request.execution
    assert execution is not None and execution.rootfs is not None
    received = bytearray()
    step = Step(
        name="loading",
        command=(execution.rootfs.python, "-c", load, "{work}/in/lib.so"),
        environment={},
        inputs=input_tree({"lib.so": built.library}),
        limits=StepLimits(seconds=600),
        on_output=lambda _, data: received.extend(data),
    )
    status = execution.runner.run(step, execution.rootfs)
    assert (status, received.decode()) == (0, "glibc 2.31\n")


def test_a_job_that_fails_is_reported_and_the_others_are_kept(tmp_path: Path) -> None:
    root = write_many(tmp_path / "k", 1)
    write_family(root, "bad", KERNEL + "raise ValueError('broken on purpose')\n")
    with pytest.raises(CompileError) as caught:
        compile_in(target("bubblewrap", tmp_path, "rocm-kernels"), root, tmp_path / "there")
    text = str(caught.value)
    assert "1 of 2 compile jobs failed twice" in text and "broken on purpose" in text
    assert "./dev compile --job bad.bad:gfx908:0 --arch gfx908 --profile full --executor bubblewrap" in text
    assert len(entries(tmp_path / "there")) == 1


_EAT = """
HOARD = b"x" * (3 << 30)
"""


def test_a_job_that_exceeds_the_memory_of_its_container_is_named(tmp_path: Path) -> None:
    root = write_many(tmp_path / "k", 1)
    write_family(root, "bad", KERNEL + _EAT)
    with pytest.raises((LimitError, CompileError)) as caught:
        compile_in(
            target("docker", tmp_path, "rocm-kernels"),
            root,
            tmp_path / "there",
            jobs=1,
            limits=WorkerLimits(memory_bytes=400 << 20),
        )
    assert "bad.bad:gfx908:0" in str(caught.value) and "memory" in str(caught.value)


def test_a_library_that_does_not_compile_reports_why(tmp_path: Path) -> None:
    checkout = copy_sources(tmp_path / "wörk träe" / "checkout")
    cmake = checkout / "runtime" / "CMakeLists.txt"
    cmake.write_text(cmake.read_text() + 'message(FATAL_ERROR "broken error on purpose")\n')
    shutil.copytree(CACHE / "sources", tmp_path / "cache" / "sources")
    execution = target("bubblewrap", tmp_path, "rocm-runtime")
    with pytest.raises(RuntimeBuildError, match="broken error on purpose"):
        build_runtime(LibraryRequest(root=checkout, cache=tmp_path / "cache", execution=execution))
    assert not list((tmp_path / "cache" / "runtime").glob("[0-9a-f]*"))
