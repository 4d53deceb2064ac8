"""Worker processes seen from their parent: number, limits, start, messages, memory, end.

Messages are frames of a JSON object and bytes, over a socket or a pipe.
"""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aotforge.base.child_processes import ChildEnvironment, fixed_environment, start_child
from aotforge.base.machine import GIB, available_cpus, available_memory, resident_bytes
from aotforge.errors import CacheError, ToolchainError
from aotforge.plan.model import CompileJob

_LOG_TAIL = 4096
_HEAD = struct.Struct("<II")
_TEXT_LIMIT, _PAYLOAD_LIMIT = 1 << 24, 1 << 28


def frame(message: dict[str, Any], payload: bytes = b"") -> bytes:
    """One frame: u32 sizes of both parts, the JSON, the payload."""
    text = json.dumps(message, separators=(",", ":")).encode("ascii")
    return b"".join((_HEAD.pack(len(text), len(payload)), text, payload))


class Frames:
    """Joins pieces of a stream to frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> list[tuple[dict[str, Any], bytes]]:
        """Frames that this piece completes. Raises ValueError for one that is too large or without a JSON object."""
        self._buffer += piece
        complete = []
        while len(self._buffer) >= _HEAD.size:
            text, payload = _HEAD.unpack_from(self._buffer)
            middle = _HEAD.size + text
            end = middle + payload
            if text > _TEXT_LIMIT or payload > _PAYLOAD_LIMIT:
                raise ValueError(f"a frame of {text} and {payload} bytes")
            if len(self._buffer) < end:
                break
            message = json.loads(self._buffer[_HEAD.size : middle])
            if not isinstance(message, dict):
                raise ValueError("a frame without a JSON object")
            complete.append((message, bytes(self._buffer[middle:end])))
            del self._buffer[:end]
        return complete


@dataclass(frozen=True, kw_only=True)
class WorkerLimits:
    """Per worker: seconds of wall time per job, bytes of resident memory, seconds to start."""

    job_seconds: float = 600.0
    memory_bytes: int = 3 * GIB // 2
    start_seconds: float = 120.0


def worker_count(jobs: int, limits: WorkerLimits, *, wanted: int | None = None) -> int:
    """Workers for `jobs` jobs: `wanted` or the number of CPUs, bounded by free memory and by the jobs; at least 1."""
    by_memory = available_memory() // limits.memory_bytes
    return max(1, min(wanted or available_cpus(), by_memory, jobs))


class WorkerProcess:
    """A child process in a session of its own, with its output in memory: Ctrl-C reaches the parent only, which kills its workers."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: ChildEnvironment,
        pass_fds: tuple[int, ...] = (),
    ) -> None:
        """Start a child with `environment`. Raises ToolchainError when that is impossible."""
        self._log = os.memfd_create("aotforge-worker-log")
        try:
            self.process = start_child(
                command,
                environment=environment,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                cwd="/",
                pass_fds=pass_fds,
                start_new_session=True,
            )
        except OSError as error:
            os.close(self._log)
            raise ToolchainError(
                f"a worker cannot be started: {error.strerror}", hint="free memory or processes"
            ) from error

    @property
    def pid(self) -> int:
        """Process ID."""
        return self.process.pid

    def kill(self) -> None:
        """Kill the process and its forks and reap it; the log is lost. Safe to call again."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def death(self) -> str:
        """The end of a process that closed its connection, in words."""
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        if code >= 0:
            return f"exited with status {code}"
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        return f"died of {name}" + (" (out of memory?)" if -code == signal.SIGKILL else "")

    def log(self) -> str:
        """The end of the log."""
        if self._log < 0:
            return ""
        start = max(0, os.fstat(self._log).st_size - _LOG_TAIL)
        return os.pread(self._log, _LOG_TAIL, start).decode("utf-8", "replace").strip("\0\n ")

    def clear_log(self) -> None:
        """Empty the log; the process continues to write at its start."""
        os.ftruncate(self._log, 0)
        os.lseek(self._log, 0, os.SEEK_SET)


class Worker(WorkerProcess):
    """A compile worker. `job` is its present job, `since` when that was sent (or the process started), by the monotonic clock."""

    def __init__(
        self,
        kernels_root: Path,
        environment: tuple[tuple[str, str], ...],
        temporary: Path,
        allocator: Path | None = None,
    ) -> None:
        """Start it. `allocator` is the library of aotforge.toolchain.allocator, without which a worker does not compile.

        Raises ToolchainError when no process can be started, CacheError when the library cannot be opened.
        """
        self._link, theirs = socket.socketpair()
        self._link.setblocking(False)
        self._frames = Frames()
        try:
            # the loader takes no path with spaces or colons in it, but /proc/self/fd it does
            with theirs, (allocator or Path(os.devnull)).open("rb") as library:
                preload = f"/proc/self/fd/{library.fileno()}" if allocator else ""
                module = ("-s", "-P", "-m", f"{__package__}.worker")
                arguments = (str(theirs.fileno()), str(os.getpid()), str(kernels_root.resolve()))
                super().__init__(
                    [sys.executable, *module, *arguments],
                    environment=worker_environment(environment, temporary, preload=preload),
                    pass_fds=(theirs.fileno(), library.fileno()),
                )
        except (OSError, ToolchainError) as error:
            self._link.close()
            if isinstance(error, OSError):
                raise CacheError(f"the compile workers' allocator {allocator}: {error.strerror}") from error
            raise
        self.ready = False
        self._job_pid = 0
        self._garbled = False
        self.job: CompileJob | None = None
        self.since = time.monotonic()

    def fileno(self) -> int:
        """Descriptor for selectors."""
        return self._link.fileno()

    def send(self, job: CompileJob) -> None:
        """Send a job. Raises OSError when the process has ended."""
        self._job_pid = 0  # the last job's fork has ended, and its number may be another process' by now
        self._link.setblocking(True)
        try:
            self._link.sendall(frame(asdict(job)))
        finally:
            self._link.setblocking(False)
        self.job = job
        self.since = time.monotonic()

    def receive(self) -> tuple[list[tuple[dict[str, Any], bytes]], bool]:
        """Complete messages, and whether the connection is still usable: not after a damaged message."""
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
        except OSError:
            pass
        return messages, False

    def memory(self) -> int:
        """Resident bytes now, of the process or of the fork that has the job."""
        return max(resident_bytes(self.pid), resident_bytes(self._job_pid) if self._job_pid else 0)

    def kill(self) -> None:
        """Kill the process and its fork and reap it. Safe to call again."""
        super().kill()
        self._link.close()

    def death(self) -> str:
        """The end of a worker that closed its connection, in words."""
        return f"the worker {'sent a damaged message' if self._garbled else super().death()}"


def worker_environment(
    pinned: tuple[tuple[str, str], ...], temporary: Path, *, preload: str = ""
) -> ChildEnvironment:
    """The complete environment of a worker: only how to load libraries is the caller's.

    `preload` is the allocator's path as the worker sees it, without spaces and colons; empty for other programs.
    """
    fixed = {
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        # backends of other packages must not take part: the job key does not cover them
        "TRITON_BACKENDS_IN_TREE": "1",
        "TZ": "UTC",
    }
    own = {"PYTHONPATH": os.pathsep.join(import_path()), "TMPDIR": str(temporary)}
    if preload:
        own["LD_PRELOAD"] = preload
    return fixed_environment(fixed | own | dict(pinned), "LD_LIBRARY_PATH")


def import_path() -> list[str]:
    """Folders in which this interpreter finds modules, for a worker to find the same ones; this package first."""
    own = str(Path(__file__).resolve().parents[2])
    return list(dict.fromkeys([own, *(entry for entry in sys.path if entry and Path(entry).is_dir())]))
