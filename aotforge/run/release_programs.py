"""Runs programs that load or compile a release's files, in bubblewrap where it works.

The sandbox has neither network nor files of the user, but for the folders that a call names. A library of a release that this
checkout did not build runs without a sandbox only after the user's consent.
"""

import os
import resource
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import which
from typing import Any

from aotforge.base.child_processes import ChildEnvironment, fixed_environment, run_child
from aotforge.errors import ExecutorError, ToolchainError

_PROBE_SECONDS = 30
_OUTPUT_LIMIT = 1 << 20
FILE_LIMIT = 1 << 28
"""Bytes of a file that a program writes, and so of an output that is all kept."""

_LIMITS = {"core": 0, "fsize": FILE_LIMIT, "data": 4 << 30}
"""Bytes, by prlimit, for each process."""

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
        """Runs `command` in `folder` with `text` on stdin and `environment` added to that of release programs; in a sandbox it
        sees `readable` and `writable` only. At most `output_limit` bytes of each output are kept.

        Raises ExecutorError when it cannot be started.
        """
        words, options = _limiter(), dict[str, Any](cwd=folder, environment=_environment(environment))
        if self.sandbox:
            # bubblewrap itself must not load libraries of the release
            options = {"environment": _environment({})}
            words += [*self.sandbox, *_mounts(readable, writable), "--chdir", str(folder)]
            inside = {"TMPDIR": "/tmp", **environment}
            words += [word for name, value in inside.items() for word in ("--setenv", name, value)]
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write(text.encode())
            given.seek(0)
            options |= {"stdin": given, "stdout": out, "stderr": err, "timeout": seconds}
            status: int | None = None
            try:
                status = run_child([*words, *command], **options).returncode
            except subprocess.TimeoutExpired:
                pass
            except OSError as error:
                raise ExecutorError(
                    f"{command[0]} cannot be started: {error.strerror}", hint="check the free memory"
                ) from error
            out.seek(0)
            err.seek(0)
            return ProgramResult(
                status=status,
                stdout=out.read(output_limit).decode("utf-8", "replace"),
                stderr=err.read(output_limit).decode("utf-8", "replace"),
            )

    def compile(
        self,
        command: Sequence[str],
        *,
        readable: Sequence[Path],
        writable: Sequence[Path] = (),
        seconds: float,
        text: str = "",
        folder: Path = Path("/"),
        output_limit: int = _OUTPUT_LIMIT,
    ) -> ProgramResult:
        """Runs a compiler or another tool of this machine on files of a release: a header can include any file that it may read.
        A check keeps the messages of dozens of compilations.

        Raises ToolchainError when it does not start or takes longer than `seconds`.
        """
        own = [Path(command[0]).resolve().parent] if Path(command[0]).is_absolute() else []
        environment = {"LC_ALL": "C", "CCACHE_DISABLE": "1"}  # ccache has no folder to write to
        try:
            done = self.run(
                command, environment=environment, readable=[*own, *readable], writable=writable, seconds=seconds,
                text=text, folder=folder, output_limit=output_limit,
            )  # fmt: skip
        except ExecutorError as error:
            raise ToolchainError(error.what, cause=error.cause, hint=error.hint) from error
        if done.status is None:
            raise ToolchainError(f"{command[0]} ran for more than {seconds:g} s")
        return done


def find_release_programs(release: str, *, own: bool, unsandboxed: bool) -> ReleasePrograms:
    """The sandbox of this machine for the library of `release`. `own`: this checkout built it; `unsandboxed`: the user consents
    to run it without a sandbox where there is none. Raises ExecutorError when there is none and neither holds."""
    programs = available_programs()
    if not programs.sandbox and not own and not unsandboxed:
        raise ExecutorError(
            f"the library of {release} is not executed: there is no sandbox on this machine",
            cause="this checkout did not build the release, and bubblewrap is not installed or not permitted",
            hint="apt-get install bubblewrap; or --unsandboxed, which runs the release's code as this user",
        )
    return programs


def check_consent(code: str, *, own: bool, unsandboxed: bool, otherwise: str = "") -> None:
    """For images that a processor or a GPU of this machine executes, which have no sandbox: `own` and `unsandboxed` as above;
    `otherwise` is what does without them. Raises ExecutorError when neither holds."""
    if not own and not unsandboxed:
        raise ExecutorError(
            f"{code} are not executed: they are code of others",
            cause="they have no sandbox, and nothing shows that this checkout built them",
            hint="--unsandboxed runs them as this user" + (otherwise and f"; or {otherwise}"),
        )


def is_own_release(release: Path, checkout: Path) -> bool:
    """Whether a release is in releases/dist of the checkout, where builds write."""
    # a path of links in a circle has no end, which `resolve` reports before Python 3.13
    return Path(os.path.realpath(release)).is_relative_to((checkout / "releases" / "dist").resolve())


@cache
def available_programs() -> ReleasePrograms:
    """The sandbox of this machine; where there is none, programs run as the caller. For tools that read a release's files."""
    program = which("bwrap")
    if program is None:
        return ReleasePrograms(sandbox=())
    words = (program, *_OPTIONS)
    try:
        done = run_child(
            [*words, *_mounts((), ()), "/bin/true"],
            environment=_environment({}),
            capture_output=True,
            timeout=_PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ReleasePrograms(sandbox=())
    return ReleasePrograms(sandbox=() if done.returncode else words)


def _environment(added: Mapping[str, str]) -> ChildEnvironment:
    return fixed_environment({"HOME": "/nonexistent", "LANG": "C.UTF-8", **added}, "PATH", "TMPDIR")


def _limiter() -> list[str]:
    """prlimit with limits that do not exceed those of this process."""
    program = which("prlimit", path=os.defpath)
    if not program:
        return []
    words = []
    for name, limit in _LIMITS.items():
        hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[1]
        words.append(f"--{name}={limit if hard == resource.RLIM_INFINITY else min(limit, hard)}")
    return [program, *words, "--"]


def _mounts(readable: Sequence[Path], writable: Sequence[Path]) -> list[str]:
    words = ["--ro-bind", "/usr", "/usr"]
    for name in _SYSTEM:
        path = Path(name)
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():
            words += ["--ro-bind", name, name]
    for name in _LOADER_FILES:
        words += ["--ro-bind-try", name, name]
    # where root calls, the kernel lets the program write /proc/sys without any capability
    words += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for option, paths in (("--ro-bind", readable), ("--bind", writable)):
        words += [word for path in paths for word in (option, str(path), str(path))]
    return words
