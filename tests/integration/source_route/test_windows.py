"""The library for Windows by CMake with mingw-w64's toolchain file."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from aotforge.library.build_windows import build_windows_runtime
from aotforge.library.library_build import LibraryRequest
from tests.integration.source_route.routes import PYTORCH, Route, files
from tests.support.runtime import CACHE, ROOT

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(shutil.which("x86_64-w64-mingw32-g++-posix") is None, reason="needs mingw-w64"),
]
TOOLCHAIN = "-DCMAKE_TOOLCHAIN_FILE=runtime/cmake/mingw.cmake"


def test_it_configures_by_the_documented_command_without_a_word(route: Callable[..., Route]) -> None:
    made = route("build é")
    # as PyTorch on Windows has it
    extra = ("-Ddlfcn-win32_DIR=/x/dlfcn", "-Dliblzma_DIR=/x/lzma")
    printed = made.output(made.configure(*PYTORCH, TOOLCHAIN, *extra, share=False))
    assert "Warning" not in printed, printed
    planned = made.ninja("-t", "query", "runtime/all", "runtime/dl/all").stdout
    assert "aotriton_v2.dll" in planned
    assert "aotriton_v2_lib" in planned
    assert "dl_lib" in planned
    made.ninja("runtime/dl/all")
    part = (
        "-DCMAKE_INSTALL_DO_STRIP=1",
        f"-DCMAKE_INSTALL_PREFIX={made.prefix}",
        "-P",
        "runtime/dl/cmake_install.cmake",
    )
    made.run("cmake", *part)
    built = (made.build / "runtime" / "dl" / "dl.dll").read_bytes()
    assert (made.prefix / "lib" / "dl.dll").read_bytes() == built, "strip would write the time"


def test_the_files_are_those_of_the_release_route(route: Callable[..., Route]) -> None:
    made = route("build é")
    made.configure(*PYTORCH, TOOLCHAIN, share=False)
    made.ninja("install/strip")
    installed = {name: data for name, data in files(made.prefix).items() if not name.startswith("share/")}
    assert installed == files(build_windows_runtime(LibraryRequest(root=ROOT, cache=CACHE)).prefix)
