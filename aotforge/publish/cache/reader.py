"""Reads and verifies objects of a shared cache in parallel, with a limit on all waiting."""

import hashlib
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

from aotforge.publish.cache.index import CacheIndex, Name, SharedObject, object_name
from aotforge.publish.stores.store import Clock, ErrorKind, Reader, StoreError

T = TypeVar("T")
PATIENCE = 20.0
"""Seconds that a build waits for a place in all, besides the time for what arrives at the least rate."""

LEAST_RATE = 64 * 1024
"""Bytes per second below which compiling is faster than waiting."""

_OBJECT_SECONDS = 0.1
"""Seconds that every received object adds to the time that may be waited: small objects take a round trip each."""

_THREADS = 8


class WrongBytesError(Exception):
    """Bytes that differ from the signed index; the text fits after the object's name."""


class CacheReader:
    """Objects of `index` at `reader`. `stop` and `reject` receive reasons in the thread that loads.

    Threads are daemons: one that hangs in a read does not keep the command from ending.
    """

    def __init__(
        self,
        reader: Reader,
        index: CacheIndex,
        *,
        reject: Callable[[Name, str], None],
        stop: Callable[[str], None],
        patience: float = PATIENCE,
        clock: Clock = time.monotonic,
    ) -> None:
        self.index = index
        self.received: list[int] = []
        self.stopped = False
        self._reader = reader
        self._reject, self._stop = reject, stop
        self._patience, self._clock, self._waited = patience, clock, 0.0
        self._queue: SimpleQueue[tuple[SharedObject, Future[bytes]]] = SimpleQueue()
        self._requested: dict[Name, Future[bytes]] = {}
        self._unusable: set[Name] = set()
        self._threads = 0

    def expect(self, names: Iterable[Name]) -> None:
        """Requests the objects, in this order."""
        for name in names:
            if name in self.index and name not in self._requested and not self.stopped:
                self._requested[name] = self._request(self.index[name])

    def load(self, name: Name) -> bytes | None:
        """The verified bytes; None for an object that the index lacks, that is damaged, or after the place was given up."""
        if name not in self.index or name in self._unusable or self.stopped:
            return None
        began, left = self._clock(), self._allowed() - self._waited
        requested = self._requested.pop(name, None)
        try:
            if left <= 0 and not (requested and requested.done()):
                raise TimeoutError
            data = (requested or self._request(self.index[name])).result(timeout=left)
        except WrongBytesError as error:
            self.discard(name, str(error))
        except StoreError as error:
            if error.kind is ErrorKind.MISSING:
                self.discard(name, "is missing")
            else:
                self._give_up(error.what)
        except TimeoutError:
            self._give_up(f"it is too slow: {sum(self.received)} bytes in {self._allowed():.0f} s")
        else:
            self.received.append(len(data))
            return data
        finally:
            self._waited += self._clock() - began
        return None

    def discard(self, name: Name, reason: str) -> None:
        """The object is not used and not requested again."""
        self._unusable.add(name)
        self._reject(name, reason)

    def _allowed(self) -> float:
        return self._patience + sum(self.received) / LEAST_RATE + len(self.received) * _OBJECT_SECONDS

    def _give_up(self, reason: str) -> None:
        self.stopped = True
        self._requested.clear()
        self._stop(reason)

    def _request(self, entry: SharedObject) -> Future[bytes]:
        future: Future[bytes] = Future()
        self._queue.put((entry, future))
        if self._threads < _THREADS:
            self._threads += 1
            threading.Thread(target=self._work, daemon=True, name="shared cache").start()
        return future

    def _work(self) -> None:
        while True:
            entry, future = self._queue.get()
            complete(future, lambda entry=entry: self._fetch(entry))  # type: ignore[misc]

    def _fetch(self, entry: SharedObject) -> bytes:
        return fetch_object(self._reader, entry, is_stopped=lambda: self.stopped)


def fetch_object(
    reader: Reader, entry: SharedObject, *, is_stopped: Callable[[], bool] = lambda: False
) -> bytes:
    """The verified bytes of an object. Raises WrongBytesError, StoreError."""
    data = bytearray()
    for chunk in reader.read(object_name(entry.sha256)):
        data += chunk
        if len(data) > entry.size or is_stopped():
            break
    if len(data) < entry.size:
        raise WrongBytesError(f"is truncated to {len(data)} of {entry.size} bytes")
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise WrongBytesError("has other content than the signed index states")
    return bytes(data)


def complete(future: Future[T], function: Callable[[], T]) -> None:
    """Gives the future the function's result or its exception."""
    try:
        future.set_result(function())
    except Exception as error:  # noqa: BLE001 - raised again in the thread that waits for the result
        future.set_exception(error)


def within(seconds: float, function: Callable[[], T]) -> T:
    """The function's result, or what it raises; TimeoutError when it takes longer; it then runs on in a daemon thread."""
    future: Future[T] = Future()
    threading.Thread(target=complete, args=(future, function), daemon=True, name="shared cache").start()
    return future.result(timeout=seconds)
