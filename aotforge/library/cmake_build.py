"""CMake builds of a source tree, on this machine or in an executor."""

import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aotforge.base.child_processes import tool_environment
from aotforge.base.files import output_errors
from aotforge.base.machine import GIB
from aotforge.base.progress import SILENT
from aotforge.errors import RuntimeBuildError
from aotforge.formats.archive import input_tree
from aotforge.library.build_tools import Tools, run_tool
from aotforge.run.choose import choose_runner
from aotforge.run.step import WORK, ExecutionTarget, Step, StepLimits

_SECONDS = 1800.0
_BYTES_PER_JOB = 3 * GIB // 4
_OUTPUT_TAIL = 1 << 20
_COMPILER = "compiler.txt"
_DESCRIBE = 'set -e\n{ "${CXX:-c++}" --version | head -n 1; "${CXX:-c++}" -dumpmachine; } > "$WORK/out/%s"\n'


def cmake_commands(
    *,
    cmake: str,
    source: str,
    objects: str,
    settings: Mapping[str, str],
    jobs: int | None,
    install: str | None,
) -> list[list[str]]:
    """Commands that configure, build and, with a prefix `install`, install; `settings` are of its cache."""
    configure = [cmake, "-S", source, "-B", objects, "-G", "Ninja"]
    configure += [f"-D{name}={value}" for name, value in sorted(settings.items())]
    commands = [configure, [cmake, "--build", objects, *(["--parallel", str(jobs)] if jobs else [])]]
    if install is not None:
        commands.append([cmake, "--install", objects, "--prefix", install])
    return commands


def shell_script(commands: list[list[str]]) -> str:
    """The commands until one fails. `$WORK` replaces `{work}`, whatever is in its value."""

    def quoted(word: str) -> str:
        return '"$WORK"'.join(shlex.quote(part) if part else "" for part in word.split(WORK)) or "''"

    return "set -e\n" + "\n".join(" ".join(map(quoted, command)) for command in commands)


def configure_and_build(
    source: Path,
    objects: Path,
    tools: Tools,
    settings: Mapping[str, str],
    *,
    jobs: int | None = None,
    environment: Mapping[str, str],
    install: Path | None = None,
) -> None:
    """Configures, builds and, with `install`, installs on this machine; the folders stay for the next build.
    Raises ToolchainError, RuntimeBuildError with the end of the failed command's output."""
    commands = cmake_commands(
        cmake=str(tools.cmake),
        source=str(source),
        objects=str(objects),
        settings=tools.settings | dict(settings),
        jobs=jobs,
        install=str(install) if install is not None else None,
    )
    for command in commands:
        done = run_tool(command, environment, seconds=_SECONDS)
        if done.returncode != 0:
            raise build_error(" ".join(command[:3]), done.returncode, done.stdout + done.stderr)


@dataclass(frozen=True, kw_only=True)
class CMakeBuild:
    """A build in an executor: `sources` are files by name below `{work}/in/source`; `folders` are copied too,
    by the CMake variable that receives their path. `compilers` (CC, CXX) are added to the environment of a
    rootfs. Without a rootfs, `tools` of this machine build in the caller's `environment`."""

    name: str
    sources: Mapping[str, Path] = field(default_factory=dict)
    folders: Mapping[str, Path] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    compilers: Mapping[str, str] = field(default_factory=dict)
    tools: Tools | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    jobs: int | None = None

    def inputs(self) -> bytes:
        """A tar of sources and folders."""
        files = {f"source/{name}": path for name, path in self.sources.items()}
        for variable, folder in self.folders.items():
            below = [path for path in folder.rglob("*") if path.is_file()]
            files |= {f"{variable}/{path.relative_to(folder)}": path for path in below}
        return input_tree(files)

    def script(self, jobs: int) -> str:
        """Commands of the step."""
        commands = cmake_commands(
            cmake=str(self.tools.cmake) if self.tools else "cmake",
            source=f"{WORK}/in/source",
            objects=f"{WORK}/objects",
            settings={
                **self.settings,
                **(self.tools.settings if self.tools else {}),
                **{variable: f"{WORK}/in/{variable}" for variable in self.folders},
            },
            jobs=jobs,
            install=f"{WORK}/out/prefix",
        )
        return ("" if self.tools else _DESCRIBE % _COMPILER) + shell_script(commands)

    def variables(self, execution: ExecutionTarget) -> dict[str, str]:
        """Environment of the step."""
        own = {"LC_ALL": "C", "WORK": WORK}
        if self.tools is not None:
            return tool_environment(self.environment) | own
        assert execution.rootfs is not None
        rootfs = {"PATH": "/usr/bin:/bin"} | dict(execution.rootfs.environment)
        return rootfs | {"HOME": "/tmp", "TMPDIR": "/tmp"} | own | dict(self.compilers)


def build_in_executor(execution: ExecutionTarget, build: CMakeBuild, install: Path) -> str:
    """Configures, builds and installs to the prefix `install`; returns the C++ compiler's description.

    Raises RuntimeBuildError with the end of the output, LimitError, ExecutorError, OutputError.
    """
    jobs = build.jobs or execution.runner.capacity()[0]
    output, folder = bytearray(), install.parent / f"{install.name}.outputs"

    def on_output(_stream: str, data: bytes) -> None:
        output.extend(data)
        del output[:-_OUTPUT_TAIL]

    step = Step(
        name=f"{build.name} ({execution.runner.name})",
        command=("/bin/sh", "-c", build.script(jobs)),
        environment=build.variables(execution),
        inputs=build.inputs(),
        outputs=folder,
        on_output=on_output,
        limits=StepLimits(
            memory_bytes=2 * GIB + jobs * _BYTES_PER_JOB,
            processes=64 + 16 * jobs,
            seconds=_SECONDS,
        ),
    )
    status = execution.runner.run(step, execution.rootfs)
    if status:
        raise build_error(step.name, status, output.decode("utf-8", "replace"))
    with output_errors(install):
        (folder / "prefix").rename(install)
        described = (folder / _COMPILER).read_text("utf-8") if build.tools is None else build.tools.compiler
        shutil.rmtree(folder)
    return " for ".join(described.split("\n")[:2])


def local_execution(cache: Path) -> ExecutionTarget:
    """The local executor, after it removed what killed builds left."""
    return ExecutionTarget(runner=choose_runner("local", cache=cache, observer=SILENT), rootfs=None)


def build_error(what: str, status: int, output: str) -> RuntimeBuildError:
    """The error for a failed build: its lines about errors, else its last ones."""
    lines = output.strip().splitlines()
    shown = [line for line in lines if "error" in line.lower()][:5] or lines[-5:]
    hint = "runtime/CMakeLists.txt requires C++17 with libstdc++, GCC 9 or clang 10 at least"
    return RuntimeBuildError(
        "the runtime library did not build:\n  " + "\n  ".join(shown),
        cause=f"{what} exited with {status}",
        hint=hint,
    )
