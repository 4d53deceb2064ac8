"""Steps as processes of this machine: unconfined, or in bubblewrap in an unpacked rootfs."""

import os
import resource
import selectors
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from subprocess import PIPE

from aotforge.base.child_processes import fixed_environment, run_child, start_child
from aotforge.base.files import errors_as, remove_unlocked, scratch_folder
from aotforge.errors import CacheError, ExecutorError
from aotforge.formats.archive import unpack
from aotforge.run.step import RootFS, Step, StepRunner

_PREFIX = "step-"
_PROBE_SECONDS = 30
_DRAIN_SECONDS = 2.0
_POLL_SECONDS = 0.1
_INSIDE = "/work"
_USER = "1000"
BARE = fixed_environment({"PATH": os.defpath})
"""Environment of an outer process, whose program gets its own."""


def find_program(package: str, program: str) -> str:
    """Path of a runner's program. Raises ExecutorError."""
    if path := shutil.which(program):
        return path
    raise ExecutorError(
        f"{package} is not installed",
        cause=f"there is no {program} on PATH",
        hint=f"apt-get install {package}, or another --executor",
    )


def failure(command: Sequence[str]) -> str:
    """Why a program cannot be run here; '' when it can."""
    try:
        done = run_child(command, environment=BARE, capture_output=True, timeout=_PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr.strip() or f"status {done.returncode}" if done.returncode else ""


@contextmanager
def work_folder(parent: Path) -> Iterator[Path]:
    """A locked folder of one step, removed at the end; also what killed runs left. Raises CacheError."""
    hint = f"free some space in {parent}, or choose another folder with --cache; then build again"
    with errors_as(CacheError, parent, hint=hint), scratch_folder(parent, _PREFIX) as folder:
        yield folder


def limited(memory_bytes: int, file_bytes: int) -> Callable[[], None]:
    """For `preexec_fn`: bounds a process's memory and the size of its files, and forbids core dumps."""
    bounds = {resource.RLIMIT_DATA: memory_bytes, resource.RLIMIT_FSIZE: file_bytes, resource.RLIMIT_CORE: 0}

    def limit() -> None:
        for number, most in bounds.items():
            hard = resource.getrlimit(number)[1]
            bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(number, (bound, bound))

    return limit


class LocalRunner(StepRunner):
    """Steps as processes of this user, with this machine's programs."""

    name = "local"

    def run(self, step: Step, rootfs: RootFS | None) -> int:
        """Runs a step as a child process."""
        with work_folder(self._folder) as work:
            for name in ("in", "out"):
                (work / name).mkdir()
            if step.inputs:
                with tarfile.open(fileobj=BytesIO(step.inputs)) as tar:
                    unpack(tar, work / "in")
            command, start = self._command(step, rootfs, work), time.monotonic()
            status = run_process(step, command)
            step.checked(status, seconds=time.monotonic() - start)
            if step.outputs is not None and not status:
                shutil.move(work / "out", step.outputs)
            return status

    def prune(self) -> list[str]:
        """Removes work folders of killed runs."""
        left = sorted(self._folder.glob(f"{_PREFIX}*"))
        for path in left:
            remove_unlocked(path)
        return [str(path) for path in left if not path.exists()]

    def _command(self, step: Step, rootfs: RootFS | None, work: Path) -> list[str]:
        """The command line that runs the step with its files in `work`."""
        return step.words(str(work))


class BubblewrapRunner(LocalRunner):
    """Steps in bubblewrap sandboxes: a read-only rootfs, no network, no daemon, no root."""

    name = "bubblewrap"

    def __init__(self, folder: Path) -> None:
        """Raises ExecutorError when the kernel does not let this user create namespaces."""
        super().__init__(folder)
        self._program = find_program("bubblewrap", "bwrap")
        if trouble := failure([*_entered(self._program, Path("/")), "/bin/true"]):
            raise ExecutorError(
                f"bubblewrap cannot create a sandbox here: {trouble}",
                cause="the kernel does not let this user create namespaces, as inside many containers",
                hint="allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1), "
                "or another --executor",
            )

    def _command(self, step: Step, rootfs: RootFS | None, work: Path) -> list[str]:
        """The step in its rootfs, of which /work and /tmp are writable."""
        assert rootfs is not None
        words = [*_entered(self._program, rootfs.unpacked()), "--bind", str(work), _INSIDE]
        return [*words, "--chdir", "/", *step.words(_INSIDE)]


def shell_command(rootfs: RootFS, run: str) -> list[str]:
    """A command of this machine that enters a rootfs: `run` is a line for /bin/sh, empty for a shell."""
    words = _entered(find_program("bubblewrap", "bwrap"), rootfs.unpacked())
    words += [word for name, value in rootfs.environment for word in ("--setenv", name, value)]
    if not run:
        words.remove("--new-session")  # the shell stays in the terminal's session
    return [*words, "--chdir", "/tmp", *(["/bin/sh", "-c", run] if run else ["/bin/bash"])]


def _entered(program: str, tree: Path) -> list[str]:
    """bubblewrap's command line with `tree` as read-only root, in namespaces of its own."""
    words = [program, "--unshare-all", "--uid", _USER, "--gid", _USER, "--die-with-parent", "--new-session"]
    words += ["--clearenv", "--ro-bind", str(tree), "/", "--proc", "/proc", "--remount-ro", "/proc"]
    return [*words, "--dev", "/dev", "--tmpfs", "/tmp"]


def run_process(step: Step, command: list[str], *, folder: Path = Path("/"), text: str = "") -> int:
    """The exit status of a step's command, or 128 + signal; `text` is its stdin. Raises ExecutorError."""
    limit = limited(step.limits.memory_bytes, step.limits.file_bytes)
    try:
        with tempfile.TemporaryFile() as given:
            given.write(text.encode())
            given.seek(0)
            process = start_child(
                command,
                environment=BARE,
                stdin=given,
                stdout=PIPE,
                stderr=PIPE,
                cwd=folder,
                start_new_session=True,
                preexec_fn=limit,
            )
    except (OSError, subprocess.SubprocessError) as error:
        raise ExecutorError(
            f"{step.name} cannot be started: {error}", hint="check the free memory and the limit of processes"
        ) from error
    with process:
        try:
            _forward(process, step)
            status = process.wait()
        finally:
            _kill(process)
    return status if status >= 0 else 128 - status


def _forward(process: subprocess.Popen[bytes], step: Step) -> None:
    """Passes both streams on until they close, or the process has ended and its children stay silent."""
    assert process.stdout is not None and process.stderr is not None
    end = float("inf")
    with selectors.DefaultSelector() as watched:
        watched.register(process.stdout, selectors.EVENT_READ, "stdout")
        watched.register(process.stderr, selectors.EVENT_READ, "stderr")
        while watched.get_map() and time.monotonic() < end:
            for key, _ in watched.select(_POLL_SECONDS):
                if data := os.read(key.fd, 1 << 16):
                    step.on_output(key.data, data)
                else:
                    watched.unregister(key.fileobj)
            if end == float("inf") and process.poll() is not None:
                _kill(process)
                end = time.monotonic() + _DRAIN_SECONDS


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
