"""The content-addressed cache: objects by kind and key, in a folder and in shared places behind it.

Layout: `<cache>/<kind>/<first two digits of the key>/<key>`. A kind's name ends in the version of its
format, e.g. `images-1`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")
_TOUCH_SECONDS = 3600.0
"""Age from which a use is recorded: a build must not write to every object that it reads."""


class DamagedObjectError(ValueError):
    """Bytes that are not the intact object of the expected key; the text fits after the object's name."""


class SharedObjects:
    """Objects in shared places, here in none; those of a place that fails are missing: nothing raises."""

    def expect(self, kind: str, keys: Iterable[str]) -> None:
        """These objects will be loaded soon, in this order."""

    def load(self, kind: str, key: str) -> bytes | None:
        """The bytes that a trusted writer has stored; None when there are none."""
        return None

    def reject(self, kind: str, key: str, reason: str) -> None:
        """The loaded bytes are not a valid object of this kind and key."""

    def wants(self, kind: str, key: str) -> bool:
        """Whether `offer` would store this object."""
        return False

    def offer(self, kind: str, key: str, data: bytes) -> None:
        """Bytes that the local cache has; they are stored later, where this command may write."""


NOT_SHARED = SharedObjects()
"""No shared places: the default of every command."""


@dataclass(frozen=True, kw_only=True)
class ObjectCache(Generic[T]):
    """Objects of one kind below the folder `cache`. Methods raise OSError when the folder cannot be used.

    `parse` gets bytes and a key and raises DamagedObjectError; `write` stores bytes at a path atomically.
    """

    cache: Path
    kind: str
    parse: Callable[[bytes, str], T]
    write: Callable[[Path, bytes], None]
    shared: SharedObjects = NOT_SHARED

    def path(self, key: str) -> Path:
        """Place of an object's file."""
        return self.cache / self.kind / key[:2] / key

    def expect(self, keys: Iterable[str]) -> None:
        """Requests those that are not here from the shared places, before the first is loaded."""
        if self.shared is not NOT_SHARED:
            self.shared.expect(self.kind, [key for key in keys if not self.path(key).is_file()])

    def load(self, key: str) -> T | None:
        """The object, from a shared place if the folder has none or a damaged one."""
        damage: DamagedObjectError | None = None
        try:
            if (data := self._read(key)) is not None:
                parsed = self.parse(data, key)
                self.shared.offer(self.kind, key, data)
                return parsed
        except DamagedObjectError as error:
            damage = error
        if (data := self.shared.load(self.kind, key)) is not None:
            try:
                parsed = self.parse(data, key)
            except DamagedObjectError as error:
                self.shared.reject(self.kind, key, str(error))
            else:
                self.write(self.path(key), data)
                return parsed
        if damage is not None:
            raise damage
        return None

    def store(self, key: str, data: bytes) -> None:
        """Stores an encoded object, replacing a damaged one."""
        self.write(self.path(key), data)
        self.shared.offer(self.kind, key, data)

    def _read(self, key: str) -> bytes | None:
        path = self.path(key)
        try:
            with path.open("rb") as file:
                record_use(path, os.fstat(file.fileno()))
                return file.read()
        except FileNotFoundError:
            return None


def record_use(path: Path, status: os.stat_result) -> None:
    """Sets the time of a file that was last used over an hour ago, for the collection; if it can be set."""
    if time.time() - status.st_mtime > _TOUCH_SECONDS:
        with suppress(OSError):
            os.utime(path)
