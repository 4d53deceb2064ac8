"""Folders that `cmake --install` writes to, and names that CMake would take for others."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.source_route.ready_images import IMAGES, release
from tests.integration.source_route.routes import PYTORCH, Route, files
from tests.support.other_user import USER
from tests.support.runtime import ROOT

Make = Callable[..., Route]
INSTALL = ("cmake", "--install", ".", "--component", "images")


@pytest.fixture
def built(route: Make, tmp_path: Path) -> Route:
    """A build with ready images."""
    made = route()
    given = release(tmp_path / "release", {"amd-gfx908": "gfx908"})
    made.configure(*[option for option in PYTORCH if "NOIMAGE" not in option], f"-DAOTRITON_IMAGES={given}")
    made.ninja("aotforge_images")
    return made


@pytest.mark.compiler
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for folders of another user")
def test_prefixes_and_build_folders_of_ordinary_machines(built: Route, tmp_path: Path) -> None:
    """Software of a group, a project folder of another user, and a build folder of mode 777."""
    images = files(built.build / "images")
    for name, user, group, mode in (
        ("of a group", 0, USER, 0o2775),
        ("of another user", USER, USER, 0o755),
        ("of mode 777", USER, USER, 0o777),
    ):
        lib = tmp_path / name / "lib"
        lib.mkdir(parents=True)
        for folder in (lib.parent, lib):
            os.chown(folder, user, group)
            folder.chmod(mode)
        built.build.chmod(0o777 if mode == 0o777 else 0o755)
        for expected in ("Installing", "Up-to-date"):
            assert expected in built.run(*INSTALL, "--prefix", str(lib.parent)).stdout
        assert files(lib / "aotriton.images") == images
        for path in (lib / "aotriton.images", lib / "aotriton.images" / "amd-gfx908"):
            found = path.stat()
            assert (found.st_gid, found.st_mode & stat.S_ISGID) == (
                (USER, stat.S_ISGID) if mode & stat.S_ISGID else (os.getegid(), 0)
            )


@pytest.mark.compiler
def test_folders_have_the_modes_of_the_umask(built: Route, tmp_path: Path) -> None:
    for mask, mode in (("002", 0o775), ("027", 0o750)):
        prefix = tmp_path / mask
        built.run("sh", "-c", f"umask {mask} && exec {' '.join(INSTALL)} --prefix {prefix}")
        made = [prefix, *prefix.rglob("*")]
        assert {path.stat().st_mode & 0o777 for path in made if path.is_dir()} == {mode}
        assert {path.stat().st_mode & 0o777 for path in made if path.is_file()} == {0o644}


@pytest.mark.compiler
def test_names_that_cmake_would_take_for_other_folders(built: Route, tmp_path: Path) -> None:
    def refused(*more: str, **environment: str) -> str:
        done = built.run(*INSTALL, *more, check=False, **environment)
        assert done.returncode
        return built.output(done)

    (tmp_path / "p1" / IMAGES / "amd-gfx908").mkdir(parents=True)
    (tmp_path / "p[1]").mkdir()
    (tmp_path / "plain").symlink_to("p[1]")
    for name in ("p[1]", "p*", "p?", "p;1"):
        assert "has one of [ ] * ? ; in its path" in refused("--prefix", str(tmp_path / name))
    for stage in ("~/stage", "/a\\b"):
        assert "of DESTDIR or the prefix, would be another folder for CMake" in refused(DESTDIR=stage)
    relative = refused("--prefix", "usr", DESTDIR=str(tmp_path / "staged"))
    assert "in DESTDIR, CMake would add the current folder" in relative
    built.run(*INSTALL, "--prefix", str(tmp_path / "plain"))
    again = built.run(*INSTALL, "--prefix", str(tmp_path / "plain"))
    assert f"Up-to-date: {tmp_path}/plain/{IMAGES}/amd-gfx908" in built.output(again)
    built.run(*INSTALL, "--prefix", "usr")
    assert files(built.build / "usr" / IMAGES) == files(built.build / "images")
    built.run(*INSTALL, DESTDIR=str(tmp_path / "staged"))
    assert files(tmp_path / "staged" / built.prefix.relative_to("/") / IMAGES) == files(
        built.build / "images"
    )


@pytest.mark.compiler
def test_the_library_alone(route: Make, tmp_path: Path) -> None:
    """docs/runtime.md: cmake -S runtime."""
    zstd = tmp_path / "zstd"
    zstd.mkdir()
    for name in ("zstd.c", "zstd.h", "zstd_errors.h"):
        (zstd / name).write_text("")
    made = replace(route(), source=ROOT / "runtime")
    made.configure(f"-DAOTFORGE_ZSTD_DIR={zstd}")
    refused = made.run("cmake", "--install", ".", check=False, DESTDIR="~/stage")
    assert refused.returncode and "would be another folder for CMake" in made.output(refused)
