"""Messages about options: unknown ones, AOTriton's, contradictions, and missing programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.library.library_build import source_digest
from tests.e2e.checkouts import copy_checkout
from tests.integration.source_route.routes import PYTORCH, Route, environment
from tests.support.runtime import ROOT

pytestmark = pytest.mark.compiler
Make = Callable[..., Route]


def test_unknown_options_are_named_and_aotritons_are_explained(route: Make) -> None:
    made = route()
    given = [
        "-DAOTRITON_FROBNICATE=1",
        "-DAOTRITON_TARGETARCH:STRING=gfx908",
        "-DAOTFORGE_PROFIL=core",
        "-DTARGET_GPUS=MI200;MI300X",
    ]
    given += [
        "-DAOTRITON_COMPRESS_KERNEL=OFF",
        "-DAOTRITON_NO_PYTHON=OFF",
        "-DAOTRITON_USE_LOCAL_TRITON_WHEEL=/a.whl",
    ]
    done = made.configure(*PYTORCH, *given)
    printed = made.output(done)
    unknown = "not known and without effect: AOTFORGE_PROFIL, AOTRITON_FROBNICATE, AOTRITON_TARGETARCH."
    assert unknown in printed
    assert "TARGET_GPUS=MI200;MI300X has no effect: archs are chosen by AOTRITON_TARGET_ARCH" in printed
    assert "AOTRITON_COMPRESS_KERNEL=OFF has no effect: images are always compressed" in printed
    assert "AOTRITON_NO_PYTHON=OFF has no effect: there are no Python bindings" in printed
    assert "AOTRITON_USE_LOCAL_TRITON_WHEEL=/a.whl has no effect: Triton and its LLVM are pinned" in printed
    assert "not known and without effect: AOTFORGE_PROFIL" in made.output(made.run("cmake", ".")), (
        "it is printed each time"
    )


def test_every_option_of_ours_is_known_and_documented(route: Make) -> None:
    made = route()
    made.configure(*PYTORCH)
    cache = (made.build / "CMakeCache.txt").read_text()
    ours = {
        line.partition(":")[0] for line in cache.splitlines() if line.startswith(("AOTRITON_", "AOTFORGE_"))
    }
    assert "AOTRITON_NOIMAGE_MODE" in ours
    page = (ROOT / "docs" / "source-route.md").read_text()
    assert [name for name in sorted(ours) if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("-DAOTRITON_NAME_SUFFIX=123", "NAME_SUFFIX=123 is not supported: the namespace is aotriton"),
        ("-DAOTRITON_BUILD_FOR_TUNING=ON", "AOTRITON_BUILD_FOR_TUNING=ON is not supported"),
        ("-DHIP_PLATFORM=nvidia", "HIP_PLATFORM=nvidia is not supported"),
        ("-DAOTRITON_GPU_BUILD_TIMEOUT=soon", "GPU_BUILD_TIMEOUT=soon is not a number of minutes"),
        ("-DAOTRITON_IMAGES=/nowhere", "AOTRITON_NOIMAGE_MODE=ON and AOTRITON_IMAGES contradict each other"),
        ("-DAOTFORGE_ZSTD_SOURCE=/nowhere.tar.gz", "is not there, or not the pinned zstandard-"),
        ("-DAOTRITON_NOIMAGE_MODE=OFF;-DAOTRITON_TARGET_ARCH=", "AOTRITON_TARGET_ARCH does not name an arch"),
        ("-DAOTRITON_NOIMAGE_MODE=OFF;-DAOTRITON_TARGET_ARCH=gfx9o8", "gfx9o8. Known archs: gfx908, "),
        ("-DAOTRITON_NOIMAGE_MODE=OFF;-DAOTRITON_IMAGES=/nowhere", "AOTRITON_IMAGES: /nowhere is not there"),
        ("-DAOTRITON_NOIMAGE_MODE=OFF;-DAOTFORGE_CACHE=/x]==])", "has characters that CMake would interpret"),
        ("-DAOTRITON_NOIMAGE_MODE=OFF;-DAOTFORGE_CACHE=/x]==", "has characters that CMake would interpret"),
        ("-DAOTRITON_NOIMAGE_MODE=OFF;-DAOTFORGE_HOME=/$<1:x>", "has characters that CMake would interpret"),
        ("-DCMAKE_SYSTEM_NAME=Windows;-DAOTRITON_NO_SHARED=ON", "is not supported for Windows"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(route: Make, option: str, message: str) -> None:
    made = route()
    # an option once more wins over the first one; the compiler is not looked at
    done = made.configure(*PYTORCH, *COMPILERS, *option.split(";"), check=False)
    assert done.returncode != 0
    assert message in made.output(done)


COMPILERS = ("-DCMAKE_C_COMPILER_WORKS=1", "-DCMAKE_CXX_COMPILER_WORKS=1")


REQUESTED = (
    "gfx803,gfx900,gfx906,gfx908,gfx90a,gfx90c,gfx942,gfx950,gfx1010,gfx1011,gfx1012,gfx1030,gfx1031,gfx1032,"
    "gfx1035,gfx1036,gfx1100,gfx1101,gfx1102,gfx1103,gfx1151,gfx1200,gfx1201"
)
LEFT_OUT = "gfx803, gfx900, gfx90c, gfx1010, gfx1011, gfx1012"


@pytest.mark.parametrize("separator", [";", ",", " "])
def test_archs_without_kernels_are_named_and_left_out(route: Make, separator: str) -> None:
    made = route()
    archs = [option for option in PYTORCH if "NOIMAGE" not in option and "TARGET" not in option]
    done = made.configure(*archs, *COMPILERS, f"-DAOTRITON_TARGET_ARCH={REQUESTED.replace(',', separator)}")
    printed = made.output(done)
    assert f"no kernels for {LEFT_OUT}; images are built for the others" in printed
    kept = [arch for arch in REQUESTED.split(",") if arch not in LEFT_OUT.split(", ")]
    assert f"aotforge: images for {', '.join(kept)} " in printed


@pytest.mark.parametrize("archs", ["gfx900", "gfx1013", "gfx902,gfx90c:xnack-"])
def test_archs_without_kernels_alone_get_the_library(route: Make, archs: str) -> None:
    made = route()
    options = [option for option in PYTORCH if "NOIMAGE" not in option and "TARGET" not in option]
    done = made.configure(*options, *COMPILERS, f"-DAOTRITON_TARGET_ARCH={archs}")
    assert "the library is built without images" in made.output(done)
    assert "aotforge_images" not in made.run("ninja", "-t", "targets", "all").stdout


def test_a_tree_without_git_has_the_digest_of_its_sources(route: Make, tmp_path: Path) -> None:
    made = route(source=copy_checkout(tmp_path / "tree"), AOTRITON_CI_SUPPLIED_SHA1="")
    assert not (made.source / ".git").exists()
    made.configure(*PYTORCH, *COMPILERS)
    made.ninja("aotforge_identity")
    config = (made.build / "installed" / "config.h").read_text()
    assert f'"{source_digest(made.source / "runtime")[:40]}"' in config


def test_without_an_archive_and_a_network_the_message_names_the_file(route: Make) -> None:
    made = route(AOTFORGE_SOURCES="")
    offline = ["-DAOTFORGE_ZSTD_URL=file:///nowhere/zstandard.tar.gz", "-DAOTFORGE_PYTHON=/nowhere/python3"]
    done = made.configure(*PYTORCH, *COMPILERS, *offline, check=False)
    assert done.returncode != 0
    printed = made.output(done)
    assert (
        "zstandard-0.25.0.tar.gz, whose C sources the library needs, cannot be fetched (file:///nowhere"
        in printed
    )
    assert "-DAOTFORGE_ZSTD_SOURCE=/path/to/zstandard-0.25.0.tar.gz" in printed
    assert "7713e1179d162cf5c7906da876ec2ccb9c3a9dcbdffef0cc7f70c3667a205f0b" in printed


def test_a_download_with_other_bytes_is_refused_and_a_good_one_taken(route: Make, tmp_path: Path) -> None:
    (tmp_path / "bad.tar.gz").write_bytes(b"not it")
    (good,) = Path(route().environment["AOTFORGE_SOURCES"]).glob("zstandard-*.tar.gz")
    made = route(AOTFORGE_SOURCES="")
    python = "-DAOTFORGE_PYTHON=/nowhere/python3"
    done = made.configure(
        *PYTORCH, *COMPILERS, python, f"-DAOTFORGE_ZSTD_URL={(tmp_path / 'bad.tar.gz').as_uri()}", check=False
    )
    assert "other bytes than the pinned ones" in made.output(done)
    made.configure(*PYTORCH, *COMPILERS, python, f"-DAOTFORGE_ZSTD_URL={Path(good).as_uri()}")
    assert [path for path in made.build.rglob("*") if path.name == "archive"] == []


@pytest.mark.parametrize("name", ["a[1]", "a?", "a*", "a;b"])
@pytest.mark.parametrize("folder", ["source", "build"])
def test_paths_that_cmake_takes_for_patterns(name: str, folder: str, route: Make, tmp_path: Path) -> None:
    """file(GLOB) would take files of the folders that they match."""
    (tmp_path / name).symlink_to(ROOT)
    made = route()
    made = (
        replace(made, source=tmp_path / name)
        if folder == "source"
        else replace(made, build=tmp_path / f"{name}b")
    )
    done = made.configure(*PYTORCH, check=False)
    assert done.returncode and "has one of [ ] * ? ; in its path" in made.output(done)


def test_servers_and_indexes_that_send_without_end_are_bounded(route: Make, tmp_path: Path) -> None:
    """A file of 200 MiB, and the limits that pip's process has."""
    endless = tmp_path / "endless.tar.gz"
    with endless.open("wb") as file:
        file.truncate(200 << 20)
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\n{{ ulimit -f; ulimit -v; }} >> "{tmp_path}/limits"\nexit 1\n')
    python.chmod(0o755)
    made = route(AOTFORGE_SOURCES="")
    url = f"-DAOTFORGE_ZSTD_URL={endless.as_uri()}"
    done = made.configure(*PYTORCH, *COMPILERS, f"-DAOTFORGE_PYTHON={python}", url, check=False)
    assert "it sends more than 64 MiB" in made.output(done)
    assert not list(made.build.rglob("zstandard-*.tar.gz"))
    assert "unlimited" not in (tmp_path / "limits").read_text().split()


def test_a_build_in_the_source_folder_is_refused(tmp_path: Path) -> None:
    source = copy_checkout(tmp_path / "tree")
    made = Route(source, source, tmp_path / "prefix", environment())
    done = made.configure(*PYTORCH, check=False)
    assert "a build inside the source folder would mix the two" in made.output(done)
