"""Kernels and library compiled in containers have the same bytes as on this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aotforge.base.architectures import load_architectures
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.remote import rootfs_toolchain
from aotforge.errors import CompileError, RuntimeBuildError
from aotforge.formats.tree import input_tree, unpack_outputs
from aotforge.library.build_linux import build_runtime
from aotforge.library.library_build import LibraryRequest
from aotforge.release.platform_tag import measure_platform_tag
from aotforge.sandbox.executors.executor import ExecutionTarget
from aotforge.sandbox.executors.step import Step, StepLimits
from aotforge.toolchain.triton import pinned_triton, read_toolchain
from tests.integration.compile.builds import build, entries
from tests.support.families import KERNEL, plan_of, write_family, write_many
from tests.support.rootfs import CACHE, ROOT, SANDBOXED, executor, project_rootfs

pytestmark = pytest.mark.compiler


def execution(name: str, folder: Path, root: str) -> ExecutionTarget:
    return ExecutionTarget(executor=executor(name, folder), rootfs=project_rootfs(root))


@pytest.mark.parametrize(
    "name",
    [name if name == "bubblewrap" else pytest.param(name, marks=pytest.mark.slow) for name in SANDBOXED],
)
def test_images_are_those_of_this_machine(name: str, tmp_path: Path) -> None:
    """By default with one executor: test_tarballs.py compares the images of all."""
    root = write_many(tmp_path / "k", 2)
    build(root, tmp_path / "here")
    there = execution(name, tmp_path, "rocm-kernels")
    with Cache(tmp_path / "there") as cache:
        compile_plan(
            plan_of(root), kernels_root=root, architectures=load_architectures(ROOT / "manifests"), cache=cache, execution=there
        )  # fmt: skip
    assert entries(tmp_path / "there") == entries(tmp_path / "here") != {}
    pinned = pinned_triton(ROOT / "requirements" / "build.in")
    assert rootfs_toolchain(there, pinned, cache=tmp_path) == read_toolchain(pinned)


def test_a_job_that_fails_in_a_sandbox_is_reported_as_here(tmp_path: Path) -> None:
    root = write_many(tmp_path / "k", 1)
    write_family(root, "bad", KERNEL + "raise ValueError('broken on purpose')\n")
    there = execution("bubblewrap", tmp_path, "rocm-kernels")
    plan = plan_of(root)
    with Cache(tmp_path / "there") as cache, Cache(tmp_path / "there") as other:
        with pytest.raises(CompileError) as caught:
            compile_plan(
                plan, kernels_root=root, architectures=load_architectures(ROOT / "manifests"), cache=cache, execution=there
            )  # fmt: skip
        assert all(other.acquire(job.key) for job in plan.jobs), "another build would wait for this one's end"
    text = str(caught.value)
    assert "1 of 2 compile jobs failed twice" in text and "broken on purpose" in text
    assert "./dev compile.job bad.bad:gfx908:0 --arch gfx908 --profile full --executor bubblewrap" in text
    assert len(entries(tmp_path / "there")) == 1  # the other one came back and is kept


def test_the_library_earns_its_tag_and_loads_in_debian_11(tmp_path: Path) -> None:
    there = execution("bubblewrap", tmp_path, "rocm-runtime")
    built = build_runtime(LibraryRequest(root=ROOT, cache=CACHE, execution=there))
    tag = measure_platform_tag(built.library, promised="manylinux_2_28")
    assert tag.reaches and built.compiler.startswith("c++ (Debian 10")
    load = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).aotforge_launch; print(*__import__('os').confstr('CS_GNU_LIBC_VERSION').split())"
    assert there.rootfs is not None
    received = bytearray()
    step = Step(
        name="loading", command=(there.rootfs.python, "-c", load, "{work}/in/lib.so"), environment={},
        inputs=input_tree({"lib.so": built.library}), limits=StepLimits(seconds=600),
    )  # fmt: skip
    done = there.executor.run(step, there.rootfs, on_output=lambda _, data: received.extend(data))
    assert (done.status, received.decode()) == (0, "glibc 2.31\n")


def test_a_library_that_does_not_compile_reports_why(tmp_path: Path) -> None:
    checkout = tmp_path / "wörk träe" / "checkout"
    for part in ("runtime", "manifests", "kernels"):
        shutil.copytree(ROOT / part, checkout / part)
    cmake = checkout / "runtime" / "CMakeLists.txt"
    cmake.write_text(cmake.read_text() + 'message(FATAL_ERROR "broken error on purpose")\n')
    shutil.copytree(CACHE / "sources", tmp_path / "cache" / "sources")
    with pytest.raises(RuntimeBuildError, match="broken error on purpose"):
        build_runtime(
            LibraryRequest(
                root=checkout,
                cache=tmp_path / "cache",
                execution=execution("bubblewrap", tmp_path, "rocm-runtime"),
            )
        )
    assert not list((tmp_path / "cache" / "runtime").glob("[0-9a-f]*"))


@pytest.mark.slow
def test_two_clones_and_three_engines_make_one_library(tmp_path: Path) -> None:
    digests = set()
    for number, name in enumerate(SANDBOXED):
        checkout = tmp_path / f"clone {number}" / ("x" * 10 * number) / "checkout"
        for part in ("runtime", "manifests", "kernels"):
            shutil.copytree(ROOT / part, checkout / part)
        shutil.copytree(CACHE / "sources", tmp_path / name / "sources")
        built = build_runtime(
            LibraryRequest(
                root=checkout, cache=tmp_path / name, execution=execution(name, tmp_path, "rocm-runtime")
            )
        )
        assert built.fresh
        digests.add(built.sha256)
    assert len(digests) == 1


def test_outputs_stay_in_their_folder(tmp_path: Path) -> None:
    import io
    import tarfile

    from aotforge.errors import ExecutorError

    for number, (name, link) in enumerate(
        (("../x", ""), ("/x", ""), ("a/../../x", ""), ("l", "/etc"), ("a/l", "../../x"))
    ):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            info = tarfile.TarInfo(name)
            if link:
                info.type, info.linkname = tarfile.SYMTYPE, link
            tar.addfile(info, io.BytesIO(b""))
        with pytest.raises(ExecutorError, match=r"outside|absolute"):
            unpack_outputs(packed.getvalue(), tmp_path / str(number))
