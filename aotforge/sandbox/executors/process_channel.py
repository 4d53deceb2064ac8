"""An agent as a process of this machine, connected through pipes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from aotforge.errors import ExecutorError
from aotforge.sandbox.executors.session import AgentExit

_EXIT_SECONDS = 5.0
_LOG_TAIL = 2000


def find_program(package: str, program: str) -> str:
    """Path of an executor's program. Raises ExecutorError."""
    if found := shutil.which(program):
        return found
    raise ExecutorError(
        f"{package} is not installed",
        cause=f"there is no {program} on PATH",
        hint=f"apt-get install {package}, or another --executor",
    )


class ProcessChannel:
    """A started process. Its stderr is kept for `ended`: the agent writes there only when it fails itself."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        what: str,
        before: Callable[[], None] | None = None,
    ) -> None:
        self._log = os.memfd_create("aotforge-agent-log")
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=dict(environment),
                cwd="/",
                # Ctrl-C reaches the client only, which then ends what it started
                start_new_session=True,
                bufsize=0,
                preexec_fn=before,  # noqa: PLW1509 - this process has no threads of its own before the agent starts
            )
        except (OSError, subprocess.SubprocessError) as error:
            os.close(self._log)
            raise ExecutorError(
                f"{what} cannot be started: {error}", hint="check that it is installed, and the free memory"
            ) from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self.pid = self._process.pid

    def send(self, data: bytes) -> None:
        """Writes all of `data`."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._stdin.fileno(), rest) :]

    def receive(self) -> bytes:
        """Waits for some bytes."""
        return os.read(self._stdout.fileno(), 1 << 20)

    def ended(self) -> AgentExit:
        """Exit status and stderr."""
        try:
            code = self._process.wait(timeout=_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return AgentExit(text="it closed its output and did not exit")
        size = os.fstat(self._log).st_size
        text = os.pread(self._log, _LOG_TAIL, max(0, size - _LOG_TAIL)).decode("utf-8", "replace").strip()
        how = f"it exited with {code}" if code >= 0 else f"it was killed by signal {-code}"
        return AgentExit(text=f"{how}: {text}" if text else how)

    def counters(self) -> Mapping[str, int]:
        """None by default."""
        return {}

    def close(self) -> None:
        """Closes stdin; the agent then kills the step and exits, or is killed."""
        with suppress(OSError):
            self._stdin.close()
        try:
            self._process.wait(timeout=_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        self._stdout.close()
        os.close(self._log)
