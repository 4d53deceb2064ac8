"""Names of containers, written down before an engine is asked to make them: it may still be making one when its client is dead already, and
then nothing that an engine lists tells the next command of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from aotforge.errors import CacheError
from aotforge.sandbox.executors import owner

_LATE_SECONDS = 10.0
"""So long a busy engine may take to make what it was asked for."""
_POLL_SECONDS = 0.2


class PendingContainers:
    """A folder with an empty file for each container that is being made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, name: str) -> None:
        """Before the engine is asked. Raises CacheError."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / name).touch()
        except OSError as error:
            raise CacheError(
                f"{error.filename or self._folder} cannot be used: {error.strerror}",
                hint="make room there, or choose another cache folder",
            ) from error

    def drop(self, name: str) -> None:
        """When the engine has answered, or cannot make it any more."""
        with suppress(OSError):
            (self._folder / name).unlink(missing_ok=True)

    def reap(self, removed: Iterable[str], remove: Callable[[str], bool]) -> list[str]:
        """Remove what dead processes had pending, as soon as it is there: those in `removed` were. `remove` says whether there was
        such a container. The names of what was removed."""
        done = set(removed)
        late: list[str] = []
        waiting = [
            name
            for name in sorted(path.name for path in self._folder.glob("aotforge-*"))
            if (who := owner.owner_of(name)) is not None and who.alive() is False
        ]
        end = time.monotonic() + _LATE_SECONDS
        while waiting:
            late += [name for name in waiting if name not in done and remove(name)]
            over = time.monotonic() > end
            for name in waiting:
                if over or name in done or name in late:
                    self.drop(name)
            waiting = [name for name in waiting if not over and name not in done and name not in late]
            if waiting:
                time.sleep(_POLL_SECONDS)
        return late
