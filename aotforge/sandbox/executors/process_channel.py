"""An agent as a process of this machine, spoken to through pipes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from aotforge.errors import ExecutorError
from aotforge.sandbox.executors.session import AgentExit

_LEAVE_SECONDS = 5.0
_LOG_TAIL = 2000


class ProcessChannel:
    """A started process. Its stderr is kept for `ended`: the agent writes there only when something is wrong with it."""

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
                # Ctrl-C reaches the builder only, which then ends what it started
                start_new_session=True,
                bufsize=0,
                preexec_fn=before,  # noqa: PLW1509 - no thread of ours runs before the agent is started
            )
        except (OSError, subprocess.SubprocessError) as error:
            os.close(self._log)
            raise ExecutorError(
                f"{what} cannot be started: {error}", hint="is it installed, and is there memory?"
            ) from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self.pid = self._process.pid

    def send(self, data: bytes) -> None:
        """All of it."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._stdin.fileno(), rest) :]

    def receive(self) -> bytes:
        """What is there; waits for it."""
        return os.read(self._stdout.fileno(), 1 << 20)

    def ended(self) -> AgentExit:
        """How it ended, and what it printed."""
        try:
            code = self._process.wait(timeout=_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            return AgentExit(text="it closed its output and did not end")
        size = os.fstat(self._log).st_size
        text = os.pread(self._log, _LOG_TAIL, max(0, size - _LOG_TAIL)).decode("utf-8", "replace").strip()
        how = f"it ended with {code}" if code >= 0 else f"it was killed by signal {-code}"
        return AgentExit(text=f"{how}: {text}" if text else how)

    def counters(self) -> Mapping[str, int]:
        """None: an executor that has some says so itself."""
        return {}

    def close(self) -> None:
        """Cut the life line; the agent ends what it started and leaves, or is killed."""
        with suppress(OSError):
            self._stdin.close()
        try:
            self._process.wait(timeout=_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        self._stdout.close()
        os.close(self._log)
