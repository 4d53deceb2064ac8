"""Building a source tree through an executor, with a root's own tools or this machine's: files go in, what cmake installs comes out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aotforge.base.files import output_errors
from aotforge.base.progress import SILENT
from aotforge.errors import RuntimeBuildError
from aotforge.library.build_tools import tool_environment, tool_settings
from aotforge.library.cmake import WORK, cmake_commands, shell_script
from aotforge.library.library_build import Tools

if TYPE_CHECKING:
    from aotforge.sandbox.executors.step import ExecutionTarget, RootFS

_GIB = 1 << 30
_SECONDS = 1800.0
_PER_JOB_BYTES = 3 * _GIB // 4
_NOTED = "compiler.txt"
_NOTE = (
    'set -e\n{ "${CXX:-c++}" --version | head -n 1; "${CXX:-c++}" -dumpmachine; } > "$WORK/out/'
    + _NOTED
    + '"\n'
)


def root_identity(rootfs: RootFS | None) -> tuple[tuple[str, str], ...]:
    """What names the tools of a root: its digest covers them all."""
    assert rootfs is not None
    return (("root", rootfs.identity),)


def build_in_executor(
    execution: ExecutionTarget,
    *,
    name: str,
    source: Mapping[str, Path],
    beside: Mapping[str, Path],
    settings: Mapping[str, str],
    jobs: int | None = None,
    install: Path,
    variables: Mapping[str, str] | None = None,
    tools: Tools | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Configure, build and install `source` (files by name) in the execution target's rootfs; `install` gets the prefix. Without a root it is
    built by this machine's `tools`, in the caller's `environment` as far as tools may see it.

    `beside` are folders that travel along, by the setting that names them inside. A toolchain file is one of `source`:
    `CMAKE_TOOLCHAIN_FILE: {work}/in/source/...`. `variables` are added to the root's environment; `CXX` is asked what it is. Returns
    the compiler's own description. Raises RuntimeBuildError with the end of what was printed, LimitError, ExecutorError, OutputError.
    """
    # imported where used: a build on this machine needs no executors
    from aotforge.formats.tree import input_tree, unpack_outputs  # noqa: PLC0415
    from aotforge.sandbox.executors.step import Step, StepLimits  # noqa: PLC0415

    members = {f"source/{path}": file for path, file in source.items()}
    inside = dict(settings) | (tool_settings(tools) if tools else {})
    for setting, folder in beside.items():
        inside[setting] = f"{{work}}/in/{setting}"
        members |= {
            f"{setting}/{file.relative_to(folder)}": file for file in folder.rglob("*") if file.is_file()
        }
    capacity = execution.executor.capacity()
    parallel = jobs or capacity.cpus
    commands = cmake_commands(
        cmake=str(tools.cmake) if tools else "cmake",
        source="{work}/in/source",
        objects="{work}/objects",
        settings=inside,
        jobs=parallel,
        install="{work}/out/prefix",
    )
    output = bytearray()
    step = Step(
        name=f"{name} ({execution.executor.name})",
        command=("/bin/sh", "-c", ("" if tools else _NOTE) + shell_script(commands)),
        environment=_environment(execution.rootfs, tools, environment or {}) | dict(variables or {}),
        inputs=input_tree(members),
        outputs=("prefix",) if tools else ("prefix", _NOTED),
        limits=StepLimits(
            memory_bytes=2 * _GIB + parallel * _PER_JOB_BYTES,
            processes=64 + 16 * parallel,
            seconds=_SECONDS,
            scratch_bytes=2 * _GIB,
        ),
    )
    finished = execution.executor.run(step, execution.rootfs, on_output=lambda _, data: output.extend(data))
    if finished.status:
        raise build_error(
            step.name,
            finished.status,
            output.decode("utf-8", "replace"),
            kept=finished.kept,
        )
    with output_errors(install):
        folder = install.parent / f"{install.name}.outputs"
        unpack_outputs(finished.outputs, folder)
        (folder / "prefix").rename(install)
        if tools is None:
            compiler = " for ".join((folder / _NOTED).read_text(encoding="utf-8").split("\n")[:2])
            (folder / _NOTED).unlink()
        else:
            compiler = tools.compiler
        folder.rmdir()
    return compiler


def local_execution(cache: Path) -> ExecutionTarget:
    """This machine as it is, swept of what earlier builds left there."""
    from aotforge.sandbox.executors.choose import choose_executor  # noqa: PLC0415
    from aotforge.sandbox.executors.step import ExecutionTarget  # noqa: PLC0415

    return ExecutionTarget(executor=choose_executor("local", cache=cache, observer=SILENT), rootfs=None)


def _environment(
    rootfs: RootFS | None, tools: Tools | None, environment: Mapping[str, str]
) -> dict[str, str]:
    own = {"LC_ALL": "C", "WORK": WORK}
    if tools is not None:
        return tool_environment(environment) | own
    assert rootfs is not None
    return {"PATH": "/usr/bin:/bin", **dict(rootfs.environment), "HOME": "/tmp", "TMPDIR": "/tmp"} | own


def build_error(what: str, status: int, output: str, *, kept: str = "") -> RuntimeBuildError:
    """The error for a failed build: its lines about errors, else its last ones."""
    lines = output.strip().splitlines()
    shown = [line for line in lines if "error" in line.lower()][:5] or lines[-5:]
    hint = "runtime/CMakeLists.txt says what it needs: C++17 with libstdc++, GCC 9 or clang 10 at least"
    return RuntimeBuildError(
        "the runtime library did not build:\n  " + "\n  ".join(shown),
        cause=f"{what} ended with {status}",
        hint=f"{hint}; what it left: {kept}" if kept else hint,
    )
