"""Runs programs that load or compile a release's files in bubblewrap, without network and keys.

The sandbox has no files of the caller: it has this machine's /usr read-only, and the folders that a call names. Code of a release
that this checkout did not build runs without it only after an explicit consent.
"""

import os
import resource
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from shutil import which
from typing import IO, Any

from aotforge.base.cache_trust import input_fault
from aotforge.base.child_processes import child_environment, run_child, secrets_in, start_child
from aotforge.errors import ExecutorError, ToolchainError
from aotforge.sandbox.executors.agent import own_tasks
from aotforge.sandbox.executors.cgroups import ControlGroups
from aotforge.sandbox.executors.session import UID

_PROBE_SECONDS = 30
_OUTPUT_LIMIT = 1 << 20
FILE_LIMIT = 1 << 28
"""Bytes of a file that a program writes, and so of an output that is all kept."""
_MEMORY = 4 << 30
"""Bytes that all processes of a program have together, and that each may allocate."""

_PROCESSES = 512
_OPEN_FILES = 512
"""Of each process: a pipe has memory of its own."""

_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_LOADER_FILES = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives")
_DEVICES = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")
"""Without /dev/zero, a file of shared memory."""

_USER = ("--unshare-all", "--unshare-user", "--uid", str(UID), "--gid", str(UID))
_ROOT = (
    *("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
    *("--cap-drop", "ALL"),
)
"""For root where the kernel permits no user namespace."""

_READ_ONLY_DEVICES = (
    *("unshare", "--mount", "/bin/sh", "-c"),
    f'for one in {" ".join(_DEVICES)}; do mount -o bind,ro "$one" "$one" || exit 1; done; exec "$@"',
    "sh",
)
"""For root, before bubblewrap: the devices are this machine's, and their owner in the sandbox could change their modes. bubblewrap
keeps read-only what is so already; a device that it makes read-only itself cannot be used."""


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
        """Runs `command` in `folder` with `text` on stdin and `environment` added to that of release programs; in a sandbox it sees
        `readable` and `writable` only. At most `output_limit` bytes of each output are kept.

        Raises ExecutorError when it cannot be started.
        """
        own = child_environment("release program", add=environment)
        with (
            tempfile.TemporaryFile() as given,
            _output() as (out, written),
            _output() as (err, complaints),
            closing(ControlGroups(memory_bytes=_MEMORY, processes=_PROCESSES)) as groups,
        ):
            given.write(text.encode())
            given.seek(0)
            options: dict[str, Any] = {"stdin": given, "stdout": out, "stderr": err, "timeout": seconds}
            try:
                options["preexec_fn"] = groups.join()
                if self.sandbox:
                    words = [
                        *(*self.sandbox, *_mounts(readable, writable)),
                        *("--chdir", str(folder), *_variables(own), *command),
                    ]
                    status: int | None = run_child("bubblewrap", _limited(words), **options).returncode
                else:
                    status = run_child(
                        "release program", _limited(command), given={}, add=own, cwd=folder, **options
                    ).returncode
            except subprocess.TimeoutExpired:
                status = None
            except OSError as error:
                raise ExecutorError(
                    f"{command[0]} cannot be started: {error.strerror}", hint="check the free memory"
                ) from error
            return ProgramResult(
                status=status,
                stdout=_beginning(written, output_limit),
                stderr=_beginning(complaints, output_limit),
            )

    def start(
        self,
        kind: str,
        command: Sequence[str],
        *,
        add: Mapping[str, str],
        readable: Sequence[Path],
        limits: ExitStack,
        pass_fds: Sequence[int] = (),
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """Starts a process of this project that reads a release's files, of a `kind` of child, with the variables of `add` and nothing on
        stdin. In a sandbox it sees `readable` only, its parent is process 1, and it has the memory and processes of release programs,
        until `limits` is closed, after its end. Raises OSError.
        """
        if not self.sandbox:
            return start_child(kind, command, add=add, pass_fds=tuple(pass_fds), **options)
        groups = limits.enter_context(closing(ControlGroups(memory_bytes=_MEMORY, processes=_PROCESSES)))
        options["preexec_fn"] = groups.join()
        with _empty_pipe() as options["stdin"]:
            own = child_environment(kind, add=add)
            words = [
                *(*self.sandbox, *_mounts(readable, ()), "--chdir", "/"),
                *(*_variables(own, path=own.get("PATH", os.defpath)), *command),
            ]
            return start_child("bubblewrap", _limited(words), pass_fds=tuple(pass_fds), **options)

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
    """The sandbox of this machine for the code of `release`. `own`: this checkout built it; `unsandboxed`: the user consents to run it
    without a sandbox where there is none.

    Raises ExecutorError when there is none and neither holds, or when keys of the caller would be readable.
    """
    if sandbox := _sandbox():
        return ReleasePrograms(sandbox=sandbox)
    if not own and not unsandboxed:
        raise ExecutorError(
            f"the library of {release} is not executed: there is no sandbox on this machine",
            cause="this checkout did not build the release, and bubblewrap is not installed or not permitted",
            hint="apt-get install bubblewrap; or --unsandboxed, which runs the release's code as this user",
        )
    if not own:
        _check_environment("library", release, "unset these variables, or apt-get install bubblewrap")
    return ReleasePrograms(sandbox=())


def check_processor_images(release: str, *, own: bool, unsandboxed: bool) -> None:
    """Images for processors are code that the verifier's process loads, outside of a sandbox: `own` and `unsandboxed` as above.

    Raises ExecutorError when neither holds, or when keys of the caller would be readable.
    """
    _check_consent("images for processors", release, "--arch with the other archs", own, unsandboxed)


def check_device_images(release: str, *, own: bool, unsandboxed: bool) -> None:
    """Images that a GPU executes reach its memory and its driver, outside of a sandbox: as above."""
    _check_consent("images", release, "--from a store, whose index is signed", own, unsandboxed)


def check_emulated_images(release: str, *, own: bool, programs: ReleasePrograms) -> None:
    """Images that the virtual GPU executes are data of an interpreter: outside of a sandbox an error of it would let them read keys.

    Raises ExecutorError for those of others when keys of the caller would be readable.
    """
    if not own and not programs.sandbox:
        _check_environment("images", release, "unset these variables, or apt-get install bubblewrap")


def check_prepared_folder(folder: Path, *, unsandboxed: bool) -> None:
    """A folder's images and library are executed outside of a sandbox, and nothing in it shows who made them: as above."""
    if not unsandboxed:
        raise ExecutorError(
            f"nothing of {folder} is executed: it may be code of others",
            cause="neither images on a GPU nor the library that launches them have a sandbox",
            hint="--unsandboxed, if you made the folder: its code runs as this user",
        )
    _check_environment("code", str(folder), "unset these variables")


def _check_consent(what: str, release: str, other: str, own: bool, unsandboxed: bool) -> None:
    if own:
        return
    if not unsandboxed:
        raise ExecutorError(
            f"the {what} of {release} are not executed: they are code of others",
            cause="this checkout did not build the release, and such images have no sandbox",
            hint=f"{other}; or --unsandboxed, which runs the release's code as this user",
        )
    _check_environment(what, release, "unset these variables")


def is_own_release(release: Path, checkout: Path) -> bool:
    """True for a release in releases/dist of the checkout, where builds write, and where no other user can change it."""
    if input_fault(release):  # first: after it no other user can let the name lead elsewhere
        return False
    # a path of links in a circle has no end, which `resolve` reports before Python 3.13
    inside = Path(os.path.realpath(release)).is_relative_to((checkout / "releases" / "dist").resolve())
    return inside and not any(input_fault(one) for one in release.rglob("*"))


def _check_environment(what: str, release: str, hint: str) -> None:
    if names := secrets_in(os.environ):
        raise ExecutorError(
            f"no {what} of {release} is executed: it could read {', '.join(names)}",
            cause="without a sandbox a program can read the environment of this process",
            hint=hint,
        )


def available_programs() -> ReleasePrograms:
    """The sandbox of this machine; where there is none, programs run as the caller. For tools that read a release's files."""
    return ReleasePrograms(sandbox=_sandbox())


@cache
def _sandbox() -> tuple[str, ...]:
    """bubblewrap with the first mounts and namespaces that the kernel permits; empty when there are none."""
    program = which("bwrap")
    if program is None:
        return ()
    root = os.geteuid() == 0
    found = product((_READ_ONLY_DEVICES, ()), (_USER, _ROOT)) if root else [((), _USER)]
    for before, namespaces in found:
        words = (*before, program, *namespaces, "--die-with-parent", "--new-session")
        probe = [*words, *_mounts((), ()), "/bin/true"]
        try:
            done = run_child("bubblewrap", probe, capture_output=True, timeout=_PROBE_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return words
    return ()


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
    # a program could let process 1 continue after its end: what /proc has of it is covered
    words += ["--proc", "/proc", "--tmpfs", "/proc/1"]
    words += ["--size", str(FILE_LIMIT), "--tmpfs", "/tmp", "--tmpfs", "/dev"]
    for name in _DEVICES:
        words += ["--dev-bind", name, name]
    words += ["--symlink", "/proc/self/fd", "/dev/fd"]
    for path in readable:
        words += ["--ro-bind", str(path), str(path)]
    for path in writable:
        words += ["--bind", str(path), str(path)]
    # / and /dev are memory without a limit; folders below them that are mounted are not affected. Where root calls, the user in the
    # sandbox is the kernel's user 0, which may write /proc/sys without any capability
    return [*words, *(word for name in ("/dev", "/proc/1", "/proc", "/") for word in ("--remount-ro", name))]


def _variables(environment: Mapping[str, str], path: str = os.defpath) -> list[str]:
    inside = {**environment, "PATH": path, "TMPDIR": "/tmp"}
    return ["--clearenv", *(word for name, value in inside.items() for word in ("--setenv", name, value))]


def _limited(command: Sequence[str]) -> list[str]:
    """The command without core files, with bounds on the size of files, of which its outputs are two, on each process' memory and open
    files, and on the processes of a user other than root: the kernel counts all of them, so those that exist are added."""
    limiter = which("prlimit", path=os.defpath)
    if not limiter:
        return [*command]
    wanted = {
        "core": (resource.RLIMIT_CORE, 0),
        "fsize": (resource.RLIMIT_FSIZE, FILE_LIMIT),
        "data": (resource.RLIMIT_DATA, _MEMORY),
        "nofile": (resource.RLIMIT_NOFILE, _OPEN_FILES),
        "nproc": (resource.RLIMIT_NPROC, own_tasks() + _PROCESSES),
        "rtprio": (resource.RLIMIT_RTPRIO, 0),
        "nice": (resource.RLIMIT_NICE, 0),
    }
    words = []
    for name, (number, limit) in wanted.items():
        hard = resource.getrlimit(number)[1]
        words.append(f"--{name}={limit if hard == resource.RLIM_INFINITY else min(limit, hard)}")
    return [limiter, *words, "--", *command]


@contextmanager
def _empty_pipe() -> Iterator[int]:
    """A descriptor without data. /dev/null of this machine would be another file than the sandbox's: its owner could change its modes."""
    reading, writing = os.pipe()
    os.close(writing)
    try:
        yield reading
    finally:
        os.close(reading)


@contextmanager
def _output() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """A file to write, and one that reads it. A program that has the first can change its flags and place, e.g. to O_DIRECT, and make
    a later open fail or wait."""
    with (
        tempfile.TemporaryFile() as written,
        Path(f"/proc/self/fd/{written.fileno()}").open("rb", buffering=0) as read,
    ):
        yield written, read


def _beginning(file: IO[bytes], limit: int) -> str:
    return file.read(limit).decode("utf-8", "replace")
