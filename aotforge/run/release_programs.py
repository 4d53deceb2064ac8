"""Runs programs that load or compile a release's files, in bubblewrap where it works.

The sandbox has neither network nor files of the user, but for the folders that a call names.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import which
from typing import Any

from aotforge.base.child_processes import fixed_environment
from aotforge.errors import ExecutorError, LimitError, ToolchainError
from aotforge.run.processes import failure, run_process
from aotforge.run.step import Step, StepLimits

_NOT_FOUND = 127
_OUTPUT_LIMIT = 1 << 20
FILE_LIMIT = 1 << 28
"""Bytes of a file that a program writes, and so of an output that is all kept."""

_OPTIONS = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_LOADER_FILES = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives")


@dataclass(frozen=True, kw_only=True)
class ProgramResult:
    """Exit status (None: the time limit was exceeded), and the beginning of both outputs."""

    status: int | None
    stdout: str
    stderr: str


@dataclass(frozen=True, kw_only=True)
class ReleasePrograms:
    """`sandbox`: bubblewrap's command with its namespaces; empty runs programs as the caller."""

    sandbox: tuple[str, ...]

    def run(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        readable: Sequence[Path],
        writable: Sequence[Path] = (),
        seconds: float,
        text: str = "",
        folder: Path = Path("/"),
        output_limit: int = _OUTPUT_LIMIT,
    ) -> ProgramResult:
        """Runs `command` in `folder` with `text` on stdin; a sandbox shows `readable` and `writable` only.

        At most `output_limit` bytes of each output are kept. Raises ExecutorError when it does not start.
        """
        outputs: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}

        def on_output(stream: str, data: bytes) -> None:
            outputs[stream] += data[: output_limit - len(outputs[stream])]

        own = {"HOME": "/nonexistent", "LANG": "C.UTF-8", **environment}
        step = Step(
            name=str(command[0]),
            command=tuple(map(str, command)),
            environment=fixed_environment(
                own | ({"TMPDIR": "/tmp"} if self.sandbox else {}), "PATH", "TMPDIR"
            ),
            on_output=on_output,
            limits=StepLimits(seconds=seconds, file_bytes=FILE_LIMIT),
        )
        words = step.words(str(folder))
        if self.sandbox:
            words = [*self.sandbox, *_mounts(readable, writable), "--chdir", str(folder), *words]
        start, status = time.monotonic(), None
        ended = run_process(step, words, folder=folder, text=text)
        with suppress(LimitError):
            status = step.checked(ended, seconds=time.monotonic() - start)
        stdout, stderr = (data.decode("utf-8", "replace") for data in outputs.values())
        if status == _NOT_FOUND:
            raise ExecutorError(f"{step.name} cannot be started", cause=stderr[-300:])
        return ProgramResult(status=status, stdout=stdout, stderr=stderr)

    def compile(
        self, command: Sequence[str], *, readable: Sequence[Path], seconds: float, **options: Any
    ) -> ProgramResult:
        """Runs a tool of this machine on a release's files; `options`: of `run`. Raises ToolchainError."""
        own = [Path(command[0]).resolve().parent] if Path(command[0]).is_absolute() else []
        environment = {"LC_ALL": "C", "CCACHE_DISABLE": "1"}  # ccache has no folder to write to
        try:
            done = self.run(
                command, environment=environment, readable=[*own, *readable], seconds=seconds, **options
            )
        except ExecutorError as error:
            raise ToolchainError(error.what, cause=error.cause, hint=error.hint) from error
        if done.status is None:
            raise ToolchainError(f"{command[0]} ran for more than {seconds:g} s")
        return done


@cache
def available_programs() -> ReleasePrograms:
    """The sandbox of this machine; where there is none, programs run as the caller."""
    words = (which("bwrap") or "", *_OPTIONS)
    return ReleasePrograms(sandbox=() if failure([*words, *_mounts((), ()), "/bin/true"]) else words)


def _mounts(readable: Sequence[Path], writable: Sequence[Path]) -> list[str]:
    words = ["--ro-bind", "/usr", "/usr"]
    for path in map(Path, _SYSTEM):
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    for name in _LOADER_FILES:
        words += ["--ro-bind-try", name, name]
    # where root calls, the kernel lets the program write /proc/sys without any capability
    words += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for option, paths in (("--ro-bind", readable), ("--bind", writable)):
        words += [word for path in paths for word in (option, str(path), str(path))]
    return words
