"""Agents as processes of this machine, and the executor that runs them without isolation."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from aotforge.base.child_processes import ChildEnvironment, fixed_environment, run_child, start_child
from aotforge.errors import ExecutorError
from aotforge.sandbox.executors.cgroups import ControlGroups
from aotforge.sandbox.executors.executor import AgentRun, Executor
from aotforge.sandbox.executors.owner import reap_folders, work_folder
from aotforge.sandbox.executors.session import AgentConfig, AgentExit, agent_command
from aotforge.sandbox.executors.step import RootFS, Step

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


def run_program(command: Sequence[str], *, environment: ChildEnvironment, seconds: float) -> tuple[str, str]:
    """Standard output of a program, and why it failed ('' when it exited with 0)."""
    try:
        done = run_child(
            command, environment=environment, capture_output=True, timeout=seconds, start_new_session=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    trouble = done.stderr.strip() or "it printed nothing"
    return done.stdout, trouble.splitlines()[-1] if done.returncode else ""


class ProcessChannel:
    """A started process. Its stderr is kept for `ended`: the agent writes there only when it fails itself. It runs in `groups`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: ChildEnvironment,
        what: str,
        groups: ControlGroups | None = None,
    ) -> None:
        self._groups = groups
        self._log = os.memfd_create("aotforge-agent-log")
        try:
            self._process = start_child(
                command,
                environment=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                cwd="/",
                # Ctrl-C reaches the client only, which then ends what it started
                start_new_session=True,
                bufsize=0,
                preexec_fn=groups.join() if groups else None,
            )
        except (OSError, subprocess.SubprocessError) as error:
            os.close(self._log)
            raise ExecutorError(
                f"{what} cannot be started: {error}", hint="check that it is installed, and the free memory"
            ) from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._reading = threading.Lock()
        self.pid = self._process.pid

    def send(self, data: bytes) -> None:
        """Writes all of `data`."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._stdin.fileno(), rest) :]

    def receive(self) -> bytes:
        """Waits for some bytes. Raises ValueError after `close`."""
        with self._reading:
            return os.read(self._stdout.fileno(), 1 << 20)

    def ended(self) -> AgentExit:
        """Exit status and stderr."""
        try:
            code = self._process.wait(timeout=_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return AgentExit(text="it closed its output and did not exit")
        begin = max(0, os.fstat(self._log).st_size - _LOG_TAIL)
        text = os.pread(self._log, _LOG_TAIL, begin).decode("utf-8", "replace").strip()
        how = f"it exited with {code}" if code >= 0 else f"it was killed by signal {-code}"
        return AgentExit(text=f"{how}: {text}" if text else how)

    def counters(self) -> Mapping[str, int]:
        """Counters of its cgroups."""
        return self._groups.counters() if self._groups else {}

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
        # a reader that has the descriptor's number must not read from the file that gets this number next
        read = self._reading.acquire(timeout=_EXIT_SECONDS)
        self._stdout.close()
        if read:
            self._reading.release()
        os.close(self._log)


class LocalExecutor(Executor):
    """Steps as processes of this user. `folder` is the parent of their work folders."""

    name = "local"

    def __init__(self, folder: Path, *, keep: bool = False) -> None:
        self._folder, self._keep = folder, keep

    @contextmanager
    def start_agent(self, step: Step, rootfs: RootFS | None) -> Iterator[AgentRun]:
        """Starts the agent with this Python."""
        # the agent gives a step the step's own environment
        own = fixed_environment({"PATH": os.defpath, "LC_ALL": "C"})
        with work_folder(self._folder) as folder:
            channel = ProcessChannel(agent_command(sys.executable), environment=own, what="a step")
            work = str(folder.path / "work")
            config = AgentConfig(
                folder=work,
                sandboxed=False,
                memory_bytes=step.limits.memory_bytes,
                processes=step.limits.processes,
            )
            enter = f"cd {shlex.quote(work)}" if self._keep else ""
            run = AgentRun(channel=channel, config=config, enter=enter)
            try:
                yield run
            finally:
                channel.close()
                folder.kept = run.kept

    def reap(self, *, kept: bool = False) -> list[str]:
        """Removes orphaned work folders."""
        return reap_folders(self._folder, kept=kept)
