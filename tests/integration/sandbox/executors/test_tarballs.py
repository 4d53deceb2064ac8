"""Complete builds with every executor: identical image tarballs, and a library with a manylinux tag."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from aotforge.pipeline.build_release import BuildReport, build
from aotforge.pipeline.display import BuildDisplay
from aotforge.pipeline.requests import BuildRequest
from tests.e2e.checkouts import copy_checkout, share_interpreter, shrink_smoke
from tests.support.rootfs import NAMES, ROOT, cache, executor, project_rootfs

pytestmark = pytest.mark.compiler


def test_one_small_build_each(tmp_path: Path) -> None:
    """Of one family, with a library that other tests have built already, each cache without images."""
    checkout = copy_checkout(tmp_path / "checkout")
    shrink_smoke(checkout)
    for family in (checkout / "kernels").glob("flash*"):
        shutil.rmtree(family)
    one_build_each(checkout, "smoke", tmp_path, shared=("containers", "sources", "runtime", "executors"))


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("profile", ["smoke", "core"])
def test_one_build_each(profile: str, tmp_path: Path) -> None:
    one_build_each(ROOT, profile, tmp_path, shared=("containers", "sources"))


def one_build_each(checkout: Path, profile: str, folder: Path, *, shared: tuple[str, ...]) -> None:
    for root in ("rocm-kernels", "rocm-runtime"):
        project_rootfs(root)
    for name in NAMES:
        executor(name, folder)
    reports = {name: built(checkout, name, profile, folder / name, shared) for name in NAMES}
    for part in ("-images-", "-asm-"):
        digests = {name: tarball(report, part) for name, report in reports.items()}
        assert len(set(digests.values())) == 1, digests
    for name in NAMES[1:]:
        assert reports[name].release.platform.reaches and reports[name].compiled > 0
        assert dict(reports[name].roots).keys() == {"rocm-kernels", "rocm-runtime"}
    everything = [{file.name: file.sha256 for file in reports[name].release.files} for name in NAMES[1:]]
    assert all(files == everything[0] for files in everything)


def built(checkout: Path, name: str, profile: str, folder: Path, shared: tuple[str, ...]) -> BuildReport:
    share_interpreter(folder)
    for part in shared:
        (cache() / part).mkdir(parents=True, exist_ok=True)
        (cache() / part).mkdir(exist_ok=True)
        (folder / part).symlink_to(cache() / part)
    request = BuildRequest(
        root=checkout, archs=("gfx908",), profile=profile, output=folder / "out", cache=folder, jobs=2, verify=False,
        executor=name, environment=dict(os.environ),
    )  # fmt: skip
    return build(request, observer=BuildDisplay(quiet=True))


def tarball(report: BuildReport, part: str) -> str:
    return next(file.sha256 for file in report.release.files if part in file.name)
