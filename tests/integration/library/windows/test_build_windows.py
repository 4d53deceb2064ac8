"""`./dev build.windows` with real compilers: layout, reproducible bytes, images unchanged."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import pytest

from aotforge.base.progress import SILENT
from aotforge.errors import ExecutorError, PackError, ReleaseError, RuntimeBuildError, ToolchainError
from aotforge.formats.archive import Link, Member, sha256_file, write_tar_gz
from aotforge.formats.sums import read_sums
from aotforge.formats.wheel import read_wheel
from aotforge.library.build_tools import find_windows_tools
from aotforge.library.build_windows import check_dll, exported_names
from aotforge.pipeline.build_windows import (
    WindowsReport,
    build_windows,
)
from aotforge.pipeline.requests import WindowsRequest
from aotforge.release.model import load_release_manifest
from aotforge.release.wheels import wheel_version
from aotforge.run.choose import ORDER, make_runner
from tests.integration.release.real import small_attention
from tests.support.runtime import CACHE, ROOT
from tests.support.windows import DLL, WindowsObjects, missing_mingw

pytestmark = pytest.mark.skipif(bool(missing_mingw()), reason=missing_mingw())
NAME = load_release_manifest(ROOT / "manifests" / "release.yaml").name
LIBRARY = {
    "aotriton_v2.dll",
    "aotriton_v2.lib",
    "libaotriton_v2.dll.a",
    "dl.dll",
    "dl.lib",
    "libdl.dll.a",
    "libdl.a",
}


def build(output: Path, root: Path = ROOT, cache: Path = CACHE, *images: Path) -> WindowsReport:
    request = WindowsRequest(
        root=root, output=output, cache=cache, jobs=2, images=images, environment={"PATH": os.environ["PATH"]}
    )
    return build_windows(request, observer=SILENT)


def members(report: WindowsReport) -> dict[str, bytes]:
    with zipfile.ZipFile(report.file) as file:
        assert file.testzip() is None
        return {info.filename: file.read(info) for info in file.infolist()}


def test_what_is_in_it(windows: WindowsObjects, tmp_path: Path) -> None:
    report = build(tmp_path)
    assert report.file == tmp_path / NAME / f"aotriton-{NAME}-win_amd64-shared.zip" and report.fresh
    found = members(report)
    assert {
        name.removeprefix("aotriton/lib/") for name in found if name.count("/") == 2 and "/lib/" in name
    } == LIBRARY
    assert {
        "aotriton/include/dlfcn.h",
        "aotriton/include/aotriton/flash.h",
        "aotriton/include/aotforge/launch.h",
    } <= set(found)
    assert "aotriton/lib/cmake/aotriton/aotritonConfig.cmake" in found and all(
        n.startswith("aotriton/") for n in found
    )
    licences = {name.rpartition("/")[2] for name in found if "/licenses/" in name}
    assert {"LICENSE", "LICENSE.zstd", "LICENSE.mingw-w64"} <= licences
    notes = found["aotriton/share/doc/aotriton/windows.txt"].decode()
    assert "cannot be guaranteed" in notes and "Microsoft's linker" in notes and "@" not in notes
    assert "aotriton/bin/dropin.exe" in found
    assert report.wheel.name == f"aotforge_attention-{wheel_version(NAME)}-py3-none-win_amd64.whl"
    assert read_wheel(report.wheel)[f"aotforge_attention/lib/{DLL}"] == found[f"aotriton/lib/{DLL}"]
    assert read_sums(tmp_path / NAME / "SHA256SUMS") == {
        file.name: sha256_file(file) for file in (report.file, report.wheel)
    }
    (tmp_path / NAME / "none.zip").symlink_to("/dev/null")
    again = build(tmp_path)
    assert "none.zip" not in (tmp_path / NAME / "SHA256SUMS").read_text()
    assert not again.fresh and again.sha256 == report.sha256 and "up to date" in again.lines()[0]
    report.file.rename(tmp_path / "moved")
    report.file.symlink_to(tmp_path / "moved")  # to where another user may write
    assert build(tmp_path).fresh and not report.file.is_symlink()
    assert again.fields()["images"] == []


def test_the_same_bytes_from_another_clone(windows: WindowsObjects, tmp_path: Path) -> None:
    """Another folder (with a space and an umlaut in its name), another cache, another time of its files."""
    checkout = tmp_path / "another pläce" / "checkout"
    for part in ("runtime", "manifests", "compat"):
        shutil.copytree(ROOT / part, checkout / part, copy_function=shutil.copy)
    shutil.copy(ROOT / "LICENSE", checkout)
    shutil.copytree(CACHE / "sources", tmp_path / "cache" / "sources")
    here, there = build(tmp_path / "a"), build(tmp_path / "b", checkout, tmp_path / "cache")
    assert there.runtime.fresh and there.runtime.inputs == here.runtime.inputs
    assert there.runtime.digests == here.runtime.digests
    assert there.file.read_bytes() == here.file.read_bytes() and there.contents == here.contents
    everything = b"".join(members(there).values())
    for path in (ROOT, checkout, CACHE, tmp_path):
        assert str(path).encode() not in everything


@pytest.mark.slow
def test_the_same_bytes_from_every_container(tmp_path: Path) -> None:
    """Each executor that works here builds into a cache of its own, in the pinned root."""
    made = {}
    for name in ORDER:
        try:
            make_runner(name, cache=CACHE)
        except ExecutorError:
            continue
        cache = tmp_path / name / "cache"
        shutil.copytree(CACHE / "sources", cache / "sources")
        environment = {
            name: os.environ[name] for name in ("PATH", "HOME", "DOCKER_HOST") if name in os.environ
        }
        request = WindowsRequest(
            root=ROOT, output=tmp_path / name, cache=cache, jobs=2, executor=name, environment=environment
        )
        made[name] = build_windows(request, observer=SILENT).sha256
    if len(made) < 2:
        pytest.skip(f"fewer than two executors work here: {', '.join(made) or 'none'}")
    assert len(set(made.values())) == 1, made


@pytest.mark.compiler
def test_images_go_in_unchanged(windows: WindowsObjects, tmp_path: Path) -> None:
    from aotforge.pack.writer import write_pack

    plan, images = small_attention()
    pack = write_pack(
        plan,
        images,
        release=NAME,
        compressor=load_release_manifest(ROOT / "manifests" / "release.yaml").compressor,
    )
    folder = tmp_path / pack.name
    folder.mkdir()
    for name, data in pack.files.items():
        (folder / name).write_bytes(data)
    tarball = tmp_path / "images.tar.gz"
    below: dict[str, Member | Link] = {
        f"aotriton/lib/aotriton.images/{pack.name}/{n}": Member(content=d) for n, d in pack.files.items()
    }
    write_tar_gz(tarball, below, epoch=0)
    reports = [build(tmp_path / str(i), ROOT, CACHE, source) for i, source in enumerate((folder, tarball))]
    assert reports[0].sha256 == reports[1].sha256
    assert reports[0].file.name == f"aotriton-{NAME}-win_amd64-shared-{pack.name}.zip"
    found = members(reports[0])
    assert {n: found[n] for n in below} == {n: m.content for n, m in below.items() if isinstance(m, Member)}
    assert sorted(reports[0].images) == sorted((f"{pack.name}/{n}", len(d)) for n, d in pack.files.items())
    assert any(f"lib/aotriton.images/{pack.name}/dispatch.aotd" in line for line in reports[0].lines())
    # an earlier file stays unchanged when images are refused
    before = reports[0].file.read_bytes()
    container = next(path for path in folder.iterdir() if path.suffix == ".aoti")
    container.write_bytes(container.read_bytes()[:-1] + b"x")
    with pytest.raises(PackError):
        build(tmp_path / "0", ROOT, CACHE, folder)
    assert reports[0].file.read_bytes() == before


def test_images_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no tarball")
    write_tar_gz(tmp_path / "other.tar.gz", {"aotriton/lib/x": Member(content=b"x")}, epoch=0)
    for name in ("empty", "text", "other.tar.gz", "absent"):
        with pytest.raises(ReleaseError, match=name):
            build(tmp_path / "out", ROOT, CACHE, tmp_path / name)
    assert not (tmp_path / "out").exists()


def test_missing_tools_name_the_packages(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="x86_64-w64-mingw32") as caught:
        find_windows_tools({"PATH": str(tmp_path)})
    assert "apt-get install" in caught.value.hint and caught.value.exit_code == 3


def test_a_library_that_breaks_its_contract_is_refused(windows: WindowsObjects) -> None:
    names = exported_names(ROOT, "0.11")
    check_dll(windows.library, names)
    with pytest.raises(RuntimeBuildError, match="it lacks zzz"):
        check_dll(windows.library, names | {"zzz"})
    with pytest.raises(RuntimeBuildError, match="it exports aotforge_launch"):
        check_dll(windows.library, names - {"aotforge_launch"})
    with pytest.raises(RuntimeBuildError, match="it exports"):
        check_dll(windows.runtime.prefix / "lib" / "dl.dll", names)
    with pytest.raises(RuntimeBuildError, match="not a Windows module"):
        check_dll(ROOT / "LICENSE", names)
