"""Whole builds with every executor: identical image tarballs, and a library that is no development build."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aotforge.build import BuildReport, BuildRequest, build
from tests.e2e.checkouts import share_interpreter
from tests.support.places import NAMES, ROOT, cache, executor, project_place

pytestmark = [pytest.mark.compiler, pytest.mark.slow]


@pytest.mark.parametrize("profile", ["smoke", "core"])
def test_one_build_each(profile: str, tmp_path: Path) -> None:
    for root in ("rocm-kernels", "rocm-runtime"):
        project_place(root)
    for name in NAMES:
        executor(name, tmp_path)
    reports = {name: built(name, profile, tmp_path / name) for name in NAMES}
    images = {name: tarball(report) for name, report in reports.items()}
    assert len(set(images.values())) == 1, images
    for name in NAMES[1:]:
        assert reports[name].release.platform.reaches and reports[name].compiled > 0
        assert dict(reports[name].roots).keys() == {"rocm-kernels", "rocm-runtime"}
    assert len({library(reports[name]) for name in NAMES[1:]}) == 1


def built(name: str, profile: str, folder: Path) -> BuildReport:
    share_interpreter(folder)
    (folder / "containers").symlink_to(cache() / "containers")
    (folder / "sources").symlink_to(cache() / "sources")
    request = BuildRequest(
        root=ROOT, archs=("gfx908",), profile=profile, output=folder / "out", cache=folder, jobs=2, verify=False,
        executor=name, environment=dict(os.environ),
    )  # fmt: skip
    return build(request, on_stage=lambda _: None, on_event=lambda _: None, on_verdict=lambda _: None)


def tarball(report: BuildReport) -> str:
    return next(file.sha256 for file in report.release.files if "-images-" in file.name)


def library(report: BuildReport) -> str:
    return next(file.sha256 for file in report.release.files if file.name.endswith("-shared.tar.gz"))
