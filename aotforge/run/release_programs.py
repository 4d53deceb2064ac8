"""Runs programs that load or compile a release's files, in bubblewrap where it works.

The sandbox has neither network nor files of the user, but for the folders that a call names.
"""

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import which
from typing import Any

from aotforge.base.child_processes import ChildEnvironment, fixed_environment, run_child
from aotforge.base.machine import GIB
from aotforge.errors import ExecutorError, ToolchainError
from aotforge.run.processes import limited

_PROBE_SECONDS = 30
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
        """Runs `command` in `folder` with `text` on stdin and `environment` added to that of release
        programs; in a sandbox it sees `readable` and `writable` only. At most `output_limit` bytes of each
        output are kept. Raises ExecutorError when it cannot be started.
        """
        words, options = [str(word) for word in command], dict[str, Any](cwd=folder, timeout=seconds)
        own = _environment(environment)
        if self.sandbox:
            own = _environment({})  # bubblewrap itself must not load libraries of the release
            inside = {"TMPDIR": "/tmp", **environment}
            variables = [word for name, value in inside.items() for word in ("--setenv", name, value)]
            mounts = [*_mounts(readable, writable), "--chdir", str(folder)]
            words = [*self.sandbox, *mounts, *variables, *words]
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write(text.encode())
            given.seek(0)
            options |= {"stdin": given, "stdout": out, "stderr": err}
            status: int | None = None
            try:
                done = run_child(words, environment=own, preexec_fn=limited(4 * GIB, FILE_LIMIT), **options)
                status = done.returncode
            except subprocess.TimeoutExpired:
                pass
            except (OSError, subprocess.SubprocessError) as error:
                raise ExecutorError(
                    f"{command[0]} cannot be started: {error}", hint="check the free memory"
                ) from error
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read(output_limit).decode("utf-8", "replace"))
            return ProgramResult(status=status, stdout=texts[0], stderr=texts[1])

    def compile(
        self, command: Sequence[str], *, readable: Sequence[Path], seconds: float, **options: Any
    ) -> ProgramResult:
        """Runs a compiler or another tool of this machine on files of a release: a header can include any
        file that it may read. `options` are those of `run`.

        Raises ToolchainError when it does not start or takes longer than `seconds`.
        """
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
    try:
        command = [*words, *_mounts((), ()), "/bin/true"]
        done = run_child(command, environment=_environment({}), capture_output=True, timeout=_PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ReleasePrograms(sandbox=())
    return ReleasePrograms(sandbox=() if done.returncode else words)


def _environment(added: Mapping[str, str]) -> ChildEnvironment:
    return fixed_environment({"HOME": "/nonexistent", "LANG": "C.UTF-8", **added}, "PATH", "TMPDIR")


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
