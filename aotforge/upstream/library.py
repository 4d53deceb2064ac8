"""AOTriton's own library without images, by its own CMake: offline and reproducible."""

import json
import re
import shlex
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aotforge.base.files import output_errors, output_lock, scratch_folder, staged_folder
from aotforge.errors import RuntimeBuildError, ToolchainError
from aotforge.formats.archive import sha256_file
from aotforge.formats.sums import SUMS, sums_bytes
from aotforge.library.build_tools import Tools, find_tools
from aotforge.library.cmake_build import cmake_commands
from aotforge.pipeline.display import BuildObserver
from aotforge.upstream.checkout import (
    AotritonCheckout,
    CheckoutRequest,
    generator_settings,
    open_checkout,
    revision_settings,
)
from aotforge.upstream.generate import PYTHON, Generator, find_sandbox
from vgpu.hip.build_hip import build_virtual_hip

RECORD = "library.json"
"""What the library was made of, besides SHA256SUMS."""
_SECONDS = 24 * 3600.0
_INTERPRETER = """#!/bin/sh
# AOTriton's CMake makes an environment and installs packages; they come from PYTHONPATH here.
case "$1 $2" in
"-m venv")
    for folder; do :; done
    mkdir -p "$folder/bin" && exec ln -s "$0" "$folder/bin/python"
    ;;
"-m pip") exit 0 ;;
esac
exec {python} "$@"
"""
_HIP = """add_library(hip::amdhip64 INTERFACE IMPORTED)
target_include_directories(hip::amdhip64 INTERFACE "{headers}")
target_compile_definitions(hip::amdhip64 INTERFACE __HIP_PLATFORM_AMD__=1)
target_link_libraries(hip::amdhip64 INTERFACE "{library}")
add_library(hip::host INTERFACE IMPORTED)
target_link_libraries(hip::host INTERFACE hip::amdhip64)
"""
"""A HIP package for CMake: headers, and a library whose name the loader will look for."""
_PRECOMPILE = """function(precompile_headers)
    target_precompile_headers(aotriton_v2 PRIVATE {headers})
endfunction()
cmake_language(DEFER CALL precompile_headers)
"""
"""For the project's end: its thousands of sources are small tables with large headers."""
_PRECOMPILED = ("dtypes", "runtime", "util", "_internal/triton_kernel", "_internal/kernel_cluster")
_STANDARD = ("functional", "string", "string_view", "vector")


@dataclass(frozen=True, kw_only=True)
class LibraryRequest(CheckoutRequest):
    """The library. `hip`: a folder of ROCm or of its headers, by default those in the Triton."""

    hip: Path | None = None


@dataclass(frozen=True, kw_only=True)
class LibraryReport:
    """What was built. `hip`: release of the headers; `compiler`: its own description."""

    output: Path
    version: str
    commit: str
    hip: str
    compiler: str
    sandboxed: bool
    digest: str

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"output": str(self.output)}

    def lines(self) -> list[str]:
        """For people."""
        return [
            f"AOTriton {self.version} ({self.commit[:12]}), HIP {self.hip}, {self.compiler}",
            f"{self.digest}  {self.output / 'lib' / 'libaotriton_v2.so'}",
        ]


def build_library(request: LibraryRequest, *, observer: BuildObserver) -> LibraryReport:
    """Configures, compiles and installs. Raises UnsupportedError, ToolchainError, RuntimeBuildError,
    OutputError, CacheError; then the output folder is as before."""
    checkout = open_checkout(request.source, request.environment)
    tools = find_tools(request.environment)
    headers, version = _find_hip(request)
    programs = find_sandbox(observer)
    with (
        output_lock(request.output),
        scratch_folder(request.cache / "upstream", "library-") as folder,
        staged_folder(request.output, known=RECORD) as staged,
    ):
        generator = Generator(
            checkout=checkout,
            packages=request.packages,
            folder=folder,
            programs=programs,
            settings=generator_settings(request.head_dims) | revision_settings(checkout),
        )
        generator.link_modules()
        library = _hip_library(request, version.partition(".")[0])
        _build(request, generator, tools, headers, library, observer)
        prefix = folder / "prefix"
        _make_relocatable(prefix)
        record = {
            "record": 1,
            "aotriton": {"version": checkout.version, "commit": checkout.commit, "tree": checkout.tree},
            "archs": request.archs,
            "head_dims": request.head_dims,
            "hip": version,
            "tools": dict(tools.identity),
        }
        licence = prefix / "share" / "licenses" / "aotriton" / "LICENSE"
        licence.parent.mkdir(parents=True)
        shutil.copyfile(checkout.root / "LICENSE", licence)
        (prefix / RECORD).write_text(json.dumps(record, indent=1) + "\n")
        files = sorted(path for path in prefix.rglob("*") if path.is_file() and not path.is_symlink())
        sums = {path.relative_to(prefix).as_posix(): sha256_file(path) for path in files}
        (prefix / SUMS).write_bytes(sums_bytes(sums))
        with output_errors(request.output):
            shutil.copytree(prefix, staged, symlinks=True, dirs_exist_ok=True)
    made = (request.output / "lib" / "libaotriton_v2.so").resolve()
    return LibraryReport(
        output=request.output,
        version=checkout.version,
        commit=checkout.commit,
        hip=version,
        compiler=tools.compiler,
        sandboxed=bool(programs.sandbox),
        digest=sums[f"lib/{made.name}"],
    )


def _find_hip(request: LibraryRequest) -> tuple[Path, str]:
    """The folder of headers and their release. Raises ToolchainError."""
    hip = request.hip
    places = [hip / "include", hip] if hip else [request.packages / "triton" / "backends" / "amd" / "include"]
    for place in places:
        try:
            text = (place / "hip" / "hip_version.h").read_text("utf-8")
        except OSError:
            continue
        numbers = dict(re.findall(r"#define HIP_VERSION_(MAJOR|MINOR)\s+(\d+)", text))
        if len(numbers) == 2:
            return place, "{MAJOR}.{MINOR}".format(**numbers)
    raise ToolchainError(
        f"{places[0]} has no headers of HIP: hip/hip_version.h",
        cause="not a folder of ROCm" if hip else "no Triton in this folder, or one without AMD's back end",
        hint="--hip /opt/rocm" if hip else f"pip install --target {request.packages} triton==3.7.0",
    )


def _hip_library(request: LibraryRequest, major: str) -> Path:
    """A library to link with, of which the result has the SONAME alone: ROCm's, else the virtual HIP."""
    for place in ("lib", "lib64"):
        if request.hip and (own := request.hip / place / "libamdhip64.so").exists():
            return own
    return build_virtual_hip(request.cache, major=int(major)).library


def _build(
    request: LibraryRequest,
    generator: Generator,
    tools: Tools,
    headers: Path,
    library: Path,
    observer: BuildObserver,
) -> None:
    """Installs to `prefix` in the generator's folder. Raises RuntimeBuildError with the failed output."""
    folder, checkout = generator.folder, generator.checkout
    interpreter = folder / "python"
    interpreter.write_text(_INTERPRETER.format(python=shlex.join(PYTHON)))
    interpreter.chmod(0o755)
    (folder / "hip").mkdir()
    (folder / "hip" / "hip-config.cmake").write_text(_HIP.format(headers=headers, library=library))
    maps = f"-ffile-prefix-map={checkout.root}=aotriton -ffile-prefix-map={folder}=build"
    settings = tools.settings | {
        "AOTRITON_NOIMAGE_MODE": "ON",
        "AOTRITON_NO_PYTHON": "ON",
        "AOTRITON_TARGET_ARCH": ";".join(request.archs),
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_CXX_FLAGS": maps,
        "CMAKE_C_FLAGS": maps,
        "CMAKE_INSTALL_PREFIX": f"{folder}/prefix",
        "CMAKE_PROJECT_AOTriton_INCLUDE": str(_precompiled(checkout, folder)),
        "CMAKE_SHARED_LINKER_FLAGS": "-Wl,-z,now",
        "CMAKE_SKIP_RPATH": "ON",
        "Python3_EXECUTABLE": str(interpreter),
        "hip_DIR": f"{folder}/hip",
    }
    configure, compile_all = cmake_commands(
        cmake=str(tools.cmake),
        source=str(checkout.root),
        objects=f"{folder}/objects",
        settings=settings,
        jobs=request.jobs,
        install=None,
    )
    install = [str(tools.cmake), "--install", f"{folder}/objects", "--strip"]
    programs = (tools.cc, tools.cxx, tools.cmake, tools.ninja)
    readable = [*generator.readable, headers, library.resolve().parent, library.parent]
    readable += [path.parent for path in programs]
    for stage, command in (("configuring", configure), ("compiling", compile_all), ("installing", install)):
        observer.stage(stage)
        done = generator.programs.run(
            command,
            environment=generator.environment | {"LC_ALL": "C", "CCACHE_DISABLE": "1"},
            readable=[place for place in dict.fromkeys(readable) if not place.is_relative_to("/usr")],
            writable=[folder],
            seconds=_SECONDS,
            output_limit=1 << 26,
        )
        if done.status:
            output = (done.stdout + done.stderr).splitlines()
            errors = [line for line in output if re.search(r"error|not found", line, re.IGNORECASE)]
            raise RuntimeBuildError(
                f"AOTriton's own build failed, {stage}:\n  " + "\n  ".join((errors or output)[-8:]),
                cause="something that it needs is not installed: pkg-config and liblzma's headers, for one",
                hint="apt-get install g++ cmake ninja-build pkg-config liblzma-dev",
            )


def _precompiled(checkout: AotritonCheckout, folder: Path) -> Path:
    """A file for CMake that adds precompiled headers to the unchanged project."""
    own = [f"aotriton/{name}.h" for name in _PRECOMPILED]
    names = [f"<{name}>" for name in _STANDARD]
    names += [f"<{name}>" for name in own if (checkout.root / "include" / name).is_file()]
    file = folder / "precompile.cmake"
    file.write_text(
        _PRECOMPILE.format(headers=" ".join(f'"$<$<COMPILE_LANGUAGE:CXX>:{name}>"' for name in names))
    )
    return file


def _make_relocatable(prefix: Path) -> None:
    """Replaces the prefix in the package for CMake by its place."""
    for path in prefix.glob("lib/cmake/aotriton/*.cmake"):
        text = path.read_text("utf-8").replace(
            f'set(_IMPORT_PREFIX "{prefix}")',
            'get_filename_component(_IMPORT_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)',
        )
        path.write_text(text.replace(f"{prefix}/", "${_IMPORT_PREFIX}/"), "utf-8")
