"""Names of archives are made and parsed by one grammar, which CMake's pattern agrees with."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import pytest

from aotforge.formats.artifact_names import ArtifactName, parse_artifact_name
from tests.support.families import PROJECT

NAMES = {
    "aotriton-0.11.2b-r1-manylinux_2_28_x86_64-rocm7.1-shared.tar.gz": ArtifactName(
        release="0.11.2b-r1", kind="runtime", platform="manylinux_2_28_x86_64", rocm="7.1"
    ),
    "aotriton-0.11b-linux_x86_64-rocm6.4.1-shared.tar.gz": ArtifactName(
        release="0.11b", kind="runtime", platform="linux_x86_64", rocm="6.4.1"
    ),
    "aotriton-0.11b-images-amd-gfx11xx.tar.gz": ArtifactName(
        release="0.11b", kind="images", pack="amd-gfx11xx"
    ),
    "aotriton-0.11.2b-r12-asm-amd-gfx90a.tar.gz": ArtifactName(
        release="0.11.2b-r12", kind="asm", pack="amd-gfx90a"
    ),
    "aotriton-0.11.2b-r1-win_amd64-shared.zip": ArtifactName(release="0.11.2b-r1", kind="windows"),
    "aotriton-0.11.2b-r1-win_amd64-shared-amd-gfx908+amd-gfx90a.zip": ArtifactName(
        release="0.11.2b-r1", kind="windows", pack="amd-gfx908+amd-gfx90a"
    ),
}


@pytest.mark.parametrize("text", NAMES)
def test_names_are_made_and_parsed(text: str) -> None:
    assert str(NAMES[text]) == text
    assert parse_artifact_name(text) == NAMES[text]


@pytest.mark.parametrize(
    "text",
    [
        "SHA256SUMS",
        "aotriton-0.11b.tar.gz",
        "aotriton-0.11b-images-.tar.gz",
        "aotriton-0.11b-images-amd-gfx908.tar.xz",
        "aotriton-0.11b-images-../x.tar.gz",
        "aotriton-a/b-images-amd-gfx908.tar.gz",
        "aotriton-0.11b-manylinux_2_28_x86_64-rocm7.-shared.tar.gz",
        "aotriton-0.11b-manylinux_2_28_x86_64-rocm7.1-shared.tar.gz.part",
        "aotriton-0.11b-macosx_11_0_arm64-rocm7.1-shared.tar.gz",
        "aotriton-0.11b-win_amd64-shared-.zip",
        "aotriton-0.11b-win_amd64-shared.tar.gz",
        " aotriton-0.11b-win_amd64-shared.zip",
        'aotriton-0.11b-images-a") execute_process(COMMAND x) #.tar.gz',
        "aotriton-0.11b-images-${a}.tar.gz",
        "aotriton-0.11b;x-images-amd-gfx908.tar.gz",
        "aotriton-0.11b-win_amd64-shared-a b.zip",
        f"aotriton-0.11b-manylinux_2_{'2' * 5000}_x86_64-rocm7.1-shared.tar.gz",
        f"aotriton-0.11b-manylinux_2_28_x86_64-rocm{'7' * 5000}-shared.tar.gz",
    ],
)
def test_other_files_are_not_archives_of_a_release(text: str) -> None:
    assert parse_artifact_name(text) is None


def test_runtimes_know_glibc_machine_and_order() -> None:
    runtime = NAMES["aotriton-0.11.2b-r1-manylinux_2_28_x86_64-rocm7.1-shared.tar.gz"].manylinux
    assert runtime and (runtime.policy, runtime.glibc) == ("manylinux_2_28", (2, 28))
    assert runtime.machine == "x86_64"
    assert NAMES["aotriton-0.11b-linux_x86_64-rocm6.4.1-shared.tar.gz"].manylinux is None
    versions = [ArtifactName(release="1b", kind="runtime", rocm=rocm) for rocm in ("7.10", "7.9", "10.0")]
    assert [one.rocm for one in sorted(versions, key=lambda one: one.rocm_version)] == ["7.9", "7.10", "10.0"]


def test_cmake_takes_the_same_names() -> None:
    text = (PROJECT / "cmake" / "take_images.cmake").read_text()
    (pattern,) = set(re.findall(r"[*]-images-[*][.\w]+", text))
    assert {name for name in NAMES if fnmatchcase(name, pattern)} == {
        name for name, parsed in NAMES.items() if parsed.kind == "images"
    }
    assert str(ArtifactName(release="<version>", kind="images", pack="<pack>")) in text
