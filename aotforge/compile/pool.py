"""Worker processes as the builder sees them: start, send, listen, kill."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from aotforge.base.machine import resident_bytes
from aotforge.compile.wire import Frames, frame, job_to_wire
from aotforge.errors import CacheError, ToolchainError
from aotforge.plan.model import CompileJob

_LOG_TAIL = 4096


class Worker:
    """One worker process. `job` is what it works on, `since` when it got that (or was started), by the monotonic clock."""

    def __init__(
        self,
        kernels_root: Path,
        environment: tuple[tuple[str, str], ...],
        temporary: Path,
        allocator: Path | None = None,
    ) -> None:
        """Start it. `allocator` is the library of aotforge.toolchain.allocator, which a compiling worker refuses to be without.

        Raises ToolchainError when no process can be started, CacheError when the library cannot be opened.
        """
        ours, theirs = socket.socketpair()
        self._link = ours
        self._link.setblocking(False)
        self._frames = Frames()
        self._log = os.memfd_create("aotforge-worker-log")
        with theirs, _opened(allocator) as library:
            arguments = [str(theirs.fileno()), str(os.getpid()), str(kernels_root.resolve())]
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-s", "-P", "-m", f"{__package__}.worker", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=self._log,
                    env=worker_environment(environment, temporary, preload=_path_of(library)),
                    cwd="/",
                    pass_fds=(theirs.fileno(), *library),
                    # Ctrl-C reaches the builder only, which then kills its workers
                    start_new_session=True,
                )
            except OSError as error:
                os.close(self._log)
                ours.close()
                raise ToolchainError(
                    f"a compile worker cannot be started: {error.strerror}", hint="free memory or processes"
                ) from error
        self.ready = False
        self._job_pid = 0
        self._garbled = False
        self.job: CompileJob | None = None
        self.since = time.monotonic()

    @property
    def pid(self) -> int:
        """Process ID."""
        return self._process.pid

    def fileno(self) -> int:
        """Descriptor for selectors."""
        return self._link.fileno()

    def send(self, job: CompileJob) -> None:
        """Give the worker a job. Raises OSError when it is gone."""
        self._job_pid = 0  # the last job's fork is gone, and its number may be another process' by now
        self._link.setblocking(True)
        try:
            self._link.sendall(frame(job_to_wire(job)))
        finally:
            self._link.setblocking(False)
        self.job = job
        self.since = time.monotonic()

    def receive(self) -> tuple[list[tuple[dict[str, Any], bytes]], bool]:
        """Complete messages, and whether the worker can still be talked to: not after a damaged message."""
        messages: list[tuple[dict[str, Any], bytes]] = []
        try:
            while piece := self._link.recv(1 << 20):
                for message, data in self._frames.feed(piece):
                    if "job_pid" in message:
                        self._job_pid = int(message["job_pid"])
                    else:
                        messages.append((message, data))
        except BlockingIOError:
            return messages, True
        except (ValueError, TypeError):
            self._garbled = True
            return messages, False
        except OSError:
            return messages, False
        return messages, False

    def memory(self) -> int:
        """Resident bytes now: of the process that has the job."""
        return max(resident_bytes(self.pid), resident_bytes(self._job_pid) if self._job_pid else 0)

    def kill(self) -> None:
        """End the process and its fork at once and reap it; safe to call again."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._link.close()
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def death(self) -> str:
        """How a worker that hung up ended, in words."""
        if self._garbled:
            return "the worker sent a damaged message"
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "the worker closed its connection"
        if code >= 0:
            return f"the worker exited with status {code}"
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        return f"the worker died of {name}" + (" (out of memory?)" if -code == signal.SIGKILL else "")

    def log(self) -> str:
        """The last of what the worker printed while at its job."""
        if self._log < 0:
            return ""
        size = os.fstat(self._log).st_size
        start = max(0, size - _LOG_TAIL)
        return os.pread(self._log, _LOG_TAIL, start).decode("utf-8", "replace").strip("\0\n ")


@contextmanager
def _opened(library: Path | None) -> Iterator[tuple[int, ...]]:
    """The library as a descriptor: the loader takes no path with spaces or colons in it, but /proc/self/fd it does."""
    if library is None:
        yield ()
        return
    try:
        descriptor = os.open(library, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CacheError(f"the compile workers' allocator {library}: {error.strerror}") from error
    try:
        yield (descriptor,)
    finally:
        os.close(descriptor)


def _path_of(descriptors: tuple[int, ...]) -> str:
    return "".join(f"/proc/self/fd/{descriptor}" for descriptor in descriptors)


def worker_environment(
    pinned: tuple[tuple[str, str], ...], temporary: Path, *, preload: str = ""
) -> dict[str, str]:
    """The whole environment of a worker: nothing of the caller's reaches the compiler except how to load libraries.

    `preload` is the allocator's path as the worker sees it, without spaces and colons; empty for programs that are no workers.
    """
    environment = {
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(_import_path()),
        "TMPDIR": str(temporary),
        # backends of other packages must not take part: the job key does not cover them
        "TRITON_BACKENDS_IN_TREE": "1",
        "TZ": "UTC",
    }
    if "LD_LIBRARY_PATH" in os.environ:
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    if preload:
        environment["LD_PRELOAD"] = preload
    return environment | dict(pinned)


def _import_path() -> list[str]:
    """Where this interpreter finds modules, so that the worker finds the same ones; this package first."""
    own = str(Path(__file__).resolve().parents[2])
    return list(dict.fromkeys([own, *(entry for entry in sys.path if entry and Path(entry).is_dir())]))
