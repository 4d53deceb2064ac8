"""Build of the library with real compilers: reproducible bytes, verified reuse, a CMake package."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from aotforge.library.build_linux import build_runtime
from aotforge.library.library_build import LibraryBuild, LibraryRequest, source_digest
from tests.support.runtime import CACHE, ROOT, Objects


@pytest.fixture(scope="module")
def built(objects: object) -> LibraryBuild:
    return build_runtime(LibraryRequest(root=ROOT, cache=CACHE))


def test_a_second_build_is_the_first(built: LibraryBuild) -> None:
    again = build_runtime(
        LibraryRequest(root=ROOT, cache=CACHE, environment={"PATH": os.environ["PATH"], "CXXFLAGS": "-O0 -g"})
    )
    assert (again.fresh, again.digests, again.inputs) == (False, built.digests, built.inputs)
    assert again.library.name == "libaotriton_v2.so.0.11.2"


@pytest.mark.slow
def test_a_damaged_build_is_repaired_with_the_same_bytes_from_another_folder(
    built: LibraryBuild, tmp_path: Path
) -> None:
    """By default tests/unit/library/test_linux_build.py repairs a build without a compiler, and
    tests/e2e/test_first_steps.py compares the bytes from another folder."""
    checkout = tmp_path / "another place" / "checkout"
    for part in ("runtime", "manifests", "kernels"):
        shutil.copytree(ROOT / part, checkout / part)
    cache = tmp_path / "cache"
    shutil.copytree(CACHE / "sources", cache / "sources")
    copy = cache / "runtime" / built.inputs
    shutil.copytree(built.prefix.parent, copy, symlinks=True)
    request = LibraryRequest(root=checkout, cache=cache, jobs=2)
    found = build_runtime(request)
    assert not found.fresh and found.prefix == copy / "prefix"
    for path in (copy / "prefix").rglob("*.so.*"):
        path.unlink()  # not one byte of the library can be the copy's
    damaged = copy / "prefix" / "include" / "aotriton" / "flash.h"
    damaged.write_text(damaged.read_text() + "//")

    other = build_runtime(request)
    assert other.fresh and other.inputs == built.inputs

    def contents(build: LibraryBuild) -> dict[str, bytes]:
        return {
            p.relative_to(build.prefix).as_posix(): p.read_bytes()
            for p in build.prefix.rglob("*")
            if p.is_file()
        }

    assert contents(other) == contents(built)
    flagged = b"".join(contents(built).values())
    assert str(ROOT).encode() not in flagged and str(CACHE).encode() not in flagged


def test_install_tree(built: LibraryBuild) -> None:
    files = {p.relative_to(built.prefix).as_posix() for p in built.prefix.rglob("*") if not p.is_dir()}
    assert {
        f"lib/{built.library.name}",
        "lib/libaotriton_v2.so",
        "lib/cmake/aotriton/aotritonConfig.cmake",
    } <= files
    headers = {name for name in files if name.startswith("include/")}
    assert headers == {f"include/aotforge/{name}.h" for name in ("launch", "ops", "tensor")} | {
        f"include/aotriton/{name}.h"
        for name in ("config", "cpp_tune", "dtypes", "flash", "runtime", "util", "v2/flash")
    }
    config = (built.prefix / "include" / "aotriton" / "config.h").read_text()
    sources = source_digest(ROOT / "runtime")
    assert f'AOTRITON_GIT_SHA1 "{sources[:40]}"' in config
    assert "MAJOR 0u" in config and "MINOR 11u" in config and "PATCH 2u" in config


@pytest.mark.parametrize("tests", ["OFF", "ON"])
def test_new_warnings_break_no_user_build(objects: Objects, tmp_path: Path, tests: str) -> None:
    """A compiler with a new warning for every file: an error only when tests are built."""
    (tmp_path / "new.h").write_text('#warning "new in this release"\n')
    settings = {
        "AOTFORGE_ZSTD_DIR": objects.zstd,
        "AOTFORGE_BUILD_TESTS": tests,
        "CMAKE_CXX_FLAGS": f"-include {tmp_path / 'new.h'}",
    }
    words = [f"-D{name}={value}" for name, value in settings.items()]
    command = ["cmake", "-G", "Ninja", "-S", str(ROOT / "runtime"), "-B", str(tmp_path / "b"), *words]
    subprocess.run(command, check=True, capture_output=True)
    target = "CMakeFiles/aotforge_readers.dir/Unity/unity_0_cxx.cxx.o"
    done = subprocess.run(
        ["ninja", "-C", tmp_path / "b", target], capture_output=True, text=True, check=False
    )
    assert "new in this release" in done.stdout
    assert (done.returncode == 0) == (tests == "OFF")


CLIENT = """
cmake_minimum_required(VERSION 3.18)
project(client LANGUAGES CXX)
find_package(aotriton 0.11 CONFIG REQUIRED)
add_executable(client client.cpp)
target_compile_features(client PRIVATE cxx_std_17)
target_include_directories(client PRIVATE "${HIP_HEADERS}")
target_link_libraries(client PRIVATE aotriton::aotriton_v2 aotriton_v2)
"""


def test_find_package_after_moving(built: LibraryBuild, tmp_path: Path) -> None:
    prefix = tmp_path / "moved"
    shutil.copytree(built.prefix, prefix, symlinks=True)
    (tmp_path / "CMakeLists.txt").write_text(CLIENT)
    (tmp_path / "client.cpp").write_text(
        "#include <aotriton/flash.h>\n"
        "int main() { return aotriton::v2::flash::check_gpu({}) == hipSuccess; }\n"
    )
    settings = [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DHIP_HEADERS={ROOT / 'runtime' / 'src' / 'standin'}"]
    subprocess.run(
        ["cmake", "-G", "Ninja", "-S", tmp_path, "-B", tmp_path / "b", *settings],
        check=True,
        capture_output=True,
    )
    subprocess.run(["cmake", "--build", tmp_path / "b"], check=True, capture_output=True)
    assert subprocess.run([tmp_path / "b" / "client"], check=False).returncode == 0
    shutil.rmtree(prefix / "lib" / "cmake" / "aotriton")
    missing = subprocess.run(
        ["cmake", "-G", "Ninja", "-S", tmp_path, "-B", tmp_path / "c", *settings],
        check=False,
        capture_output=True,
    )
    assert missing.returncode != 0
