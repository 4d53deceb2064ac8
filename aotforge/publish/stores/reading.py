"""Bounded reads from stores: sizes, a deadline for metadata, a least average rate for everything.

Without them a server that sends a byte now and then keeps a client for ever (TUF's slow retrieval attack).
"""

import time
from collections.abc import Callable, Iterable, Iterator

from aotforge.publish.stores.store import ErrorKind, Reader, StoreError

Clock = Callable[[], float]
"""Seconds of a monotonic clock; replaced in tests."""

METADATA_SECONDS = 120.0
"""Deadline for a metadata file."""

GRACE_SECONDS = 120.0
"""Seconds that a download may take regardless of its size: connections, redirects, pauses before retries."""

LEAST_RATE = 2048
"""Bytes per second that a download must reach on average after the grace: a quarter of a 64 kbit/s line."""

_HINT = "use another mirror, or try again later; a file that was begun is resumed"


class Pace:
    """The least average rate of one download. `left` raises StoreError as soon as it falls short."""

    def __init__(self, place: str, clock: Clock = time.monotonic) -> None:
        self._place = place
        self._clock = clock
        self._start = clock()
        self._bytes = 0

    def count(self, size: int) -> None:
        """Adds received bytes of content."""
        self._bytes += size

    def left(self) -> float:
        """Seconds that the next bytes may take. Raises StoreError when there are none left."""
        elapsed = self._clock() - self._start
        left = GRACE_SECONDS + self._bytes / LEAST_RATE - elapsed
        if left <= 0:
            raise StoreError(
                ErrorKind.UNAVAILABLE,
                f"{self._place} is too slow: {self._bytes} bytes in {elapsed:.0f} s",
                cause=f"the server sends less than {LEAST_RATE} bytes/s, on purpose or under load",
                hint=_HINT,
            )
        return left


def before_deadline(chunks: Iterable[bytes], place: str, clock: Clock = time.monotonic) -> Iterator[bytes]:
    """The chunks of a metadata file. Raises StoreError when it takes longer than `METADATA_SECONDS`."""
    start = clock()
    for chunk in chunks:
        yield chunk
        if (elapsed := clock() - start) > METADATA_SECONDS:
            raise StoreError(
                ErrorKind.UNAVAILABLE,
                f"{place} was not complete after {elapsed:.0f} s",
                cause=f"a metadata file must arrive within {METADATA_SECONDS:.0f} s; the server is slow or delays it on purpose",
                hint=_HINT,
            )


def read_small(reader: Reader, name: str, *, limit: int, clock: Clock = time.monotonic) -> bytes:
    """A metadata file of at most `limit` bytes. Raises StoreError: REFUSED when it is larger, UNAVAILABLE when it is slow."""
    place = f"{reader.url}/{name}"
    return collect(before_deadline(reader.read(name), place, clock), place, limit=limit)


def collect(chunks: Iterable[bytes], place: str, *, limit: int) -> bytes:
    """The chunks as one value. Raises StoreError, REFUSED when they exceed `limit` bytes."""
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > limit:
            raise too_large(place, limit)
    return bytes(data)


def too_large(place: str, limit: int) -> StoreError:
    """The error for an object that exceeds `limit` bytes."""
    what = f"{place} is larger than {limit} bytes"
    return StoreError(ErrorKind.REFUSED, what, cause="it is not the expected object")
