"""The library by CMake: installed files, incremental builds, and other ways to configure it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from aotforge.library.build_linux import build_runtime
from aotforge.library.library_build import LibraryRequest
from tests.e2e.checkouts import copy_checkout
from tests.integration.source_route.routes import LAUNCHER, PYTORCH, Route, environment, files, times
from tests.support.runtime import CACHE, ROOT

pytestmark = pytest.mark.compiler
Make = Callable[..., Route]
LIBRARY = "lib/libaotriton_v2.so.0.11.2"


def without_licences(prefix: Path) -> dict[str, bytes | str]:
    return {name: data for name, data in files(prefix).items() if not name.startswith("share/")}


def released() -> dict[str, bytes | str]:
    """Files of a release's library, without the operator library."""
    found = files(build_runtime(LibraryRequest(root=ROOT, cache=CACHE)).prefix)
    ours = (
        "lib/libaotforge_ops.",
        "lib/cmake/aotforge_ops/",
        "include/aotforge/ops.h",
        "include/aotforge/tensor.h",
    )
    assert all(any(name.startswith(prefix) for name in found) for prefix in ours)
    return {name: data for name, data in found.items() if not name.startswith(ours)}


def test_as_pytorch_calls_it_the_files_are_those_of_the_release_route(route: Make) -> None:
    made = route("a build é")
    printed = made.output(made.configure(*PYTORCH))
    assert "Warning" not in printed, printed
    made.ninja("install")
    assert without_licences(made.prefix) == released()
    assert {name for name in files(made.prefix) if name.startswith("share/")} == {
        "share/licenses/aotriton/LICENSE",
        "share/licenses/aotriton/LICENSE.zstd",
    }
    before = times(made.prefix), times(made.build / "runtime")
    assert "no work to do" in made.ninja().stdout
    made.ninja("install")
    assert (times(made.prefix), times(made.build / "runtime")) == before
    made.ninja("install/strip")
    assert without_licences(made.prefix) == released(), "strip finds nothing"
    moved = made.prefix.with_name("root")
    made.ninja("install", DESTDIR=str(moved))
    assert files(moved / made.prefix.relative_to("/")) == files(made.prefix)
    part = made.prefix.with_name("part")
    made.run("cmake", "--install", ".", "--prefix", str(part), "--component", "runtime")
    assert set(files(part)) == {LIBRARY, *(n for n in files(made.prefix) if n.startswith("share/"))}


def test_a_changed_source_compiles_its_target_alone(route: Make, tmp_path: Path) -> None:
    source = copy_checkout(tmp_path / "tree")
    made = route(source=source)
    made.configure(*PYTORCH)
    made.ninja("install")
    config = made.prefix / "include" / "aotriton" / "config.h"
    old = config.read_bytes(), (made.prefix / LIBRARY).read_bytes()
    for installed in (config, made.prefix / LIBRARY):
        os.utime(installed, (0, 0))  # CMake installs no file that is less than a second newer
    objects = times(made.build / "runtime" / "CMakeFiles")
    path = source / "runtime" / "src" / "log.cpp"
    path.write_text(path.read_text() + "\nnamespace aotforge { int added() { return 1; } }\n")
    made.ninja("install")
    later = times(made.build / "runtime" / "CMakeFiles")
    compiled = {name for name in later if name.endswith(".o") and later[name] != objects[name]}
    assert compiled == {"aotforge_readers.dir/Unity/unity_0_cxx.cxx.o"}
    assert config.read_bytes() != old[0], "the installed config.h names other sources now"
    (source / "README.md").write_text("something else\n")
    assert "no work to do" in made.ninja().stdout


def exported(library: Path) -> set[str]:
    done = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in done.stdout.splitlines()}


@pytest.mark.skipif(shutil.which("clang++-19") is None, reason="needs clang")
def test_clang_with_lld_debug_lines_and_an_absolute_folder_of_libraries(route: Make) -> None:
    """As nixpkgs and Gentoo configure it: both set the folder, and flags of their own."""
    flags = "-g1 -gz -fuse-ld=lld"
    made = route(CC="clang-19", CXX="clang++-19", CFLAGS=flags, CXXFLAGS=flags, LDFLAGS="-fuse-ld=lld")
    options = [option for option in PYTORCH if "BUILD_TYPE" not in option]
    library_folder = f"-DCMAKE_INSTALL_LIBDIR={made.prefix}/lib"
    made.configure(*options, "-DCMAKE_BUILD_TYPE=RelWithDebInfo", library_folder)
    made.ninja("install")
    released_library = build_runtime(LibraryRequest(root=ROOT, cache=CACHE)).prefix / LIBRARY
    assert exported(made.prefix / LIBRARY) == exported(released_library)
    with (made.prefix / LIBRARY).open("rb") as file:
        elf = ELFFile(file)
        assert "lld" in elf.get_section_by_name(".comment").data().decode(errors="replace").lower()
        assert elf.has_dwarf_info()


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_makefiles_and_a_locale_without_unicode(route: Make) -> None:
    made = route("прошу", LC_ALL="C")
    made.configure(*PYTORCH, generator="Unix Makefiles")
    made.run("make", "-j2", "install/strip")
    again = made.run("make", "install")
    assert "Building" not in again.stdout, again.stdout
    assert without_licences(made.prefix) == released()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_pytorchs_external_project_from_a_git_repository(tmp_path: Path) -> None:
    clone = copy_checkout(tmp_path / "repository")
    for command in (
        ("init", "-q"),
        ("add", "-A"),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all"),
    ):
        subprocess.run(["git", *command], cwd=clone, check=True)
    subprocess.run(["git", "tag", "0.11.2b"], cwd=clone, check=True)
    outer = tmp_path / "torch"
    outer.mkdir()
    shutil.copy(Path(__file__).with_name("external_project.cmake"), outer / "CMakeLists.txt")
    env = environment(CMAKE_CXX_COMPILER_LAUNCHER=LAUNCHER, CMAKE_C_COMPILER_LAUNCHER=LAUNCHER)
    build = str(outer / "build")
    configure = ["cmake", "-S", str(outer), "-B", build, "-G", "Ninja", f"-DREPOSITORY={clone.as_uri()}"]
    for step in (configure, ["ninja", "-C", build]):
        done = subprocess.run(step, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    installed = outer / "torch"
    assert without_licences(installed) == released()
    assert (outer / "build" / "uses_it").is_file(), "what waits for the project finds its library"
