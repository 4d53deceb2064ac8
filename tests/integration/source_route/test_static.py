"""The static library: one archive for find_package, images next to the program, no zstd symbols."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.source_route.routes import PYTORCH, Route
from tests.support.attention import spy_pack
from tests.support.runtime import ROOT, build_objects
from tests.support.small_pack import write

pytestmark = pytest.mark.compiler
HERE = Path(__file__).parent
_FILE_NOT_FOUND = 301


def test_a_program_with_the_static_library_finds_images_beside_itself(
    route: Callable[..., Route], tmp_path: Path
) -> None:
    made = route("static é")
    made.configure(*PYTORCH, "-DAOTRITON_NO_SHARED=ON")
    made.ninja("install/strip")
    archive = made.prefix / "lib" / "libaotriton_v2.a"
    assert sorted(p.name for p in (made.prefix / "lib").iterdir()) == ["cmake", archive.name]
    symbols = subprocess.run(
        ["nm", "-gP", archive], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    defined = {line.split()[0] for line in symbols if len(line.split()) > 2 and line.split()[1] in "TDBRWV"}
    assert not [
        name
        for name in defined
        if not name.startswith(("_Z", "DW.ref", "aotforge_launch", "aotforge_cpu_threads"))
    ]
    assert "_ZN8aotriton2v25flash9check_gpuENS_14StreamTemplateIP12ihipStream_tEE" in defined

    program = build_client(made, tmp_path)
    env = {k: v for k, v in os.environ.items() if not k.startswith("AOTRITON")}
    env |= {"LD_LIBRARY_PATH": str(build_objects().hip(7)), "HIP_DOUBLE_DEVICES": "gfx908@120"}

    def run(**extra: str) -> str:
        # found through PATH: argv[0] is the bare name
        found = {"PATH": f"{program.parent}:{env['PATH']}"}
        done = subprocess.run(
            ["program"], env=env | found | extra, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert run() == f"1 {_FILE_NOT_FOUND}"
    write(spy_pack(), tmp_path / "elsewhere" / "amd-gfx908")
    assert run(AOTRITON_IMAGES_DIR=str(tmp_path / "elsewhere")) == "1 0"
    shutil.copytree(tmp_path / "elsewhere", program.parent / "aotriton.images")
    assert run() == "1 0"


def build_client(made: Route, tmp_path: Path) -> Path:
    """The client by find_package, in a folder with a space."""
    source, build = tmp_path / "client", tmp_path / "client build"
    source.mkdir()
    shutil.copy(HERE / "static_client.cpp", source / "client.cpp")
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(client LANGUAGES CXX)\n"
        "find_package(aotriton REQUIRED CONFIG)\n"
        "add_executable(program client.cpp)\ntarget_link_libraries(program PRIVATE aotriton::aotriton_v2)\n"
        f'target_include_directories(program SYSTEM PRIVATE "{ROOT}/runtime/src/standin")\n'
    )
    prefix = f"-DCMAKE_PREFIX_PATH={made.prefix}"
    made.run("cmake", "-G", "Ninja", "-S", str(source), "-B", str(build), prefix)
    made.run("cmake", "--build", str(build))
    return build / "program"
