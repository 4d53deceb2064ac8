"""Container executors: the life of a container, and the containers that killed processes left."""

import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from aotforge.base.files import make_folders
from aotforge.errors import ExecutorError
from aotforge.sandbox.executors import owner, session
from aotforge.sandbox.executors.executor import AgentRun, Executor
from aotforge.sandbox.executors.session import AgentConfig, Channel
from aotforge.sandbox.executors.step import RootFS, Step

SPARE_PROCESSES = 8
"""Processes of the agent and the engine, beyond those of a step."""

_SPARE_SECONDS = 600
"""Time before and after a step: the deadline on a container's label must not be too early."""

_CREATION_SECONDS = 10.0
"""Time that a busy engine may take to create a container after its client was killed."""

_POLL_SECONDS = 0.2


class PendingContainers:
    """Intent log: a folder with an empty file for each container that is being created.

    An engine may still be creating a container after its client was killed; the engine does not list it until then.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, name: str) -> None:
        """Call it before the engine creates the container. Raises CacheError."""
        with owner.cache_errors(self._folder):
            make_folders(self._folder)
            (self._folder / name).touch()

    def drop(self, name: str) -> None:
        """Call it when the engine has created the container, or cannot any more."""
        with suppress(OSError):
            (self._folder / name).unlink(missing_ok=True)

    def orphaned(self) -> set[str]:
        """Names that killed processes of this machine left."""
        names = {path.name for path in self._folder.glob("aotforge-*")}
        return set(filter(owner.is_orphaned, names))


class ContainerExecutor(Executor):
    """Steps in containers of an engine. Nothing is mounted: files travel through the attached streams. `folder` has the intent log."""

    def __init__(self, folder: Path, *, keep: bool = False) -> None:
        self._pending, self._keep = PendingContainers(folder), keep

    @abstractmethod
    def require_image(self, rootfs: RootFS) -> None:
        """Loads the image if the engine lacks it. Raises ExecutorError."""

    @abstractmethod
    def start_container(self, name: str, step: Step, rootfs: RootFS) -> Channel:
        """Starts the agent in a new container. Raises ExecutorError."""

    @abstractmethod
    def remove(self, name: str) -> bool:
        """Removes a container; False when it does not exist. A later `reap` removes what cannot be removed now."""

    def is_created(self, name: str) -> bool:
        """False while the engine is still creating the container, where `remove` would see a part of it."""
        return True

    @abstractmethod
    def labelled(self) -> list[tuple[str, Mapping[str, str]]]:
        """Names and labels of all containers of this project, running or not. Raises ExecutorError."""

    @property
    def heartbeat_timeout(self) -> float:
        """Seconds without a heartbeat after which an agent exits; 0 where the engine closes stdin reliably."""
        return 0.0

    def labels(self, step: Step) -> dict[str, str]:
        """Labels of a new container."""
        seconds = (session.KEEP_ALIVE_SECONDS if self._keep else 0) + step.limits.seconds + _SPARE_SECONDS
        return owner.labels(owner.this_process(), seconds=seconds, keep=self._keep)

    @contextmanager
    def start_agent(self, step: Step, rootfs: RootFS | None) -> Iterator[AgentRun]:
        """Starts the agent in a container."""
        assert rootfs is not None
        self.require_image(rootfs)
        name, kept = owner.new_name(), False
        try:
            self._pending.add(name)
            channel = self.start_container(name, step, rootfs)
            config = AgentConfig(
                folder=session.WORK,
                sandboxed=True,
                heartbeat_timeout=self.heartbeat_timeout,
                keep_alive=session.KEEP_ALIVE_SECONDS if self._keep else 0,
            )
            enter = f"{self.name} exec -it -w {session.WORK} {name} /bin/sh" if self._keep else ""
            run = AgentRun(channel=channel, config=config, enter=enter)
            try:
                yield run
            finally:
                kept = run.kept
                if not kept:
                    channel.close()
        finally:
            if not kept:
                self.remove(name)
            self._pending.drop(name)

    def reap(self, *, kept: bool = False) -> list[str]:
        """Removes containers of processes that are gone, also those that the engine is still creating."""
        removed = []
        for name, marks in self.labelled():
            if owner.is_named(name, marks) and (
                owner.abandoned(marks, now=time.time()) or (kept and owner.releasable(marks))
            ):
                self.remove(name)
                removed.append(name)
        return removed + self._reap_pending(removed)

    def _reap_pending(self, removed: Iterable[str]) -> list[str]:
        pending, late = self._pending.orphaned(), []
        end = time.monotonic() + _CREATION_SECONDS
        for name in pending.intersection(removed):
            self._pending.drop(name)
        pending.difference_update(removed)
        while pending and time.monotonic() < end:
            late += sorted(name for name in pending if self.is_created(name) and self.remove(name))
            pending.difference_update(late)
            if pending:
                time.sleep(_POLL_SECONDS)
        late += sorted(
            name for name in pending if self.remove(name)
        )  # parts of one whose creation was killed
        for name in pending.union(late):
            self._pending.drop(name)
        return late


def engine_error(engine: str, doing: str, cause: str, *, otherwise: str) -> ExecutorError:
    """The error for a failed engine command; `otherwise` is the hint unless the disk is full."""
    full = "no space left" in cause.lower()
    return ExecutorError(
        f"{engine} failed: {doing}",
        cause=cause,
        hint=f"free some space where the engine stores its images ({engine.lower()} system df)"
        if full
        else otherwise,
    )
