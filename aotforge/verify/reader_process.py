"""Processes that read and execute images of releases: in a sandbox where there is one, with limits."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing import Pipe
from pathlib import Path

from aotforge.base.architectures import MANIFESTS
from aotforge.base.machine import user_home
from aotforge.compile.pool import WorkerProcess, import_path
from aotforge.errors import ToolchainError
from aotforge.sandbox.release_programs import ReleasePrograms

READY = b"ready"
_START_SECONDS = 120.0
UNCONFINED = ReleasePrograms(sandbox=())


class ReaderProcess(WorkerProcess):
    """`python -m MODULE ARGUMENTS... PARENT FD [MORE...]`, run by `programs`; its first message on the connection is READY.

    In a sandbox it sees this package, Python and `readable`, and PARENT is its process 1. Raises ToolchainError when it cannot be started.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        more: Sequence[str] = (),
        *,
        programs: ReleasePrograms,
        readable: Sequence[Path] = (),
    ) -> None:
        self.connection, theirs = Pipe()
        self._limits, self._started = ExitStack(), False
        # without the links of an environment, which lead through other folders: its modules are in the path
        python = Path(sys.executable).resolve() if programs.sandbox else sys.executable
        parent = 1 if programs.sandbox else os.getpid()
        with theirs, ExitStack() as failed:
            failed.enter_context(self._limits)
            failed.callback(self.connection.close)
            super().__init__(
                "verification worker",
                [str(python), "-m", module, *arguments, str(parent), str(theirs.fileno()), *more],
                environment={"PYTHONPATH": os.pathsep.join(import_path())},
                pass_fds=(theirs.fileno(),),
                start=partial(programs.start, readable=[*readable_folders(), *readable], limits=self._limits),
            )
            failed.pop_all()

    def kill(self) -> None:
        """Kill the process and reap it. Safe to call again."""
        super().kill()
        self._limits.close()

    def exchange(self, message: object, *, seconds: float, most: int) -> bytes:
        """The answer to a message, of at most `most` bytes.

        Raises TimeoutError when both take longer than `seconds`, which ends the process; OSError, EOFError for one that has ended;
        ToolchainError for one that has not started.
        """
        if not self._started:
            self._wait()
            self._started = True
        with self._limited(seconds):
            self.connection.send(message)
            return self.connection.recv_bytes(most)

    def _wait(self) -> None:
        try:
            with self._limited(_START_SECONDS):
                ready = self.connection.recv_bytes(len(READY)) == READY
        except (OSError, EOFError):
            ready = False
        if not ready:
            raise ToolchainError(
                f"the process that reads images {self.death()}: {self.log()}",
                cause="this Python does not start in the sandbox of releases, or its environment is incomplete",
                hint="./dev doctor; for a release, --unsandboxed does without the sandbox",
            )

    @contextmanager
    def _limited(self, seconds: float) -> Iterator[None]:
        late = threading.Event()

        def end() -> None:
            late.set()
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except (OSError, EOFError):
            if late.is_set():
                raise TimeoutError from None
            raise
        finally:
            timer.cancel()


def readable_folders() -> list[Path]:
    """Folders of Python's libraries, modules, this package and its manifests; none that has this checkout or the user's home in it."""
    own = Path(__file__).resolve().parents[2]
    private = [own, user_home().resolve()]
    folders = [Path(sys.base_prefix), Path(sys.executable).resolve().parent, own / "aotforge", MANIFESTS]
    folders += map(Path, (*import_path(), *os.environ.get("LD_LIBRARY_PATH", "").split(":")))
    return [
        one
        for one in dict.fromkeys(folders)
        if one.is_absolute()
        and one.is_dir()
        and not one.is_relative_to("/usr")
        and not any(inner.is_relative_to(one.resolve()) for inner in private)
    ]
