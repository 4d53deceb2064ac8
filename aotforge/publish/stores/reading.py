"""Bounded reads from stores: sizes, deadlines, and the continuation of broken downloads."""

import time
from collections.abc import Callable, Iterable, Iterator

from aotforge.base.downloads import FILE_SECONDS, within
from aotforge.publish.stores.store import ErrorKind, Reader, Sleep, StoreError

METADATA_SECONDS = 120.0
"""Deadline of a metadata file."""

ATTEMPTS = 5
_AGAIN = "run the same command again: it continues where it stopped"


class TransientError(Exception):
    """A failure that may be over at the next attempt; its text has no secrets."""


def retry(
    open_at: Callable[[int], Iterator[bytes]], place: str, start: int, sleep: Sleep = time.sleep
) -> Iterator[bytes]:
    """The bytes from `start` on; after a TransientError `open_at` gives the rest.

    Raises StoreError, UNAVAILABLE after `ATTEMPTS` failures in a row.
    """
    position, failures = start, 0
    while True:
        try:
            for chunk in open_at(position):
                position += len(chunk)
                failures = 0
                yield chunk
            return
        except TransientError as error:
            failures += 1
            if failures == ATTEMPTS:
                what = f"{place} cannot be read: {error}"
                cause = f"the server or the network failed {ATTEMPTS} times"
                raise StoreError(ErrorKind.UNAVAILABLE, what, cause=cause, hint=_AGAIN) from None
            sleep(0.5 * 2**failures)


def read_file(reader: Reader, name: str, *, start: int = 0, seconds: float | None = None) -> Iterator[bytes]:
    """A file, from `start` on. Raises StoreError: UNAVAILABLE after `seconds`, by default `FILE_SECONDS`."""
    seconds, place = FILE_SECONDS if seconds is None else seconds, f"{reader.url}/{name}"
    try:
        yield from within(seconds, reader.read(name, start=start))
    except TimeoutError:
        raise StoreError(
            ErrorKind.UNAVAILABLE,
            f"{place} was not complete after {seconds:.0f} s",
            cause="the server is slow, or delays it on purpose",
            hint="use another mirror, or try again later; a file that was begun is resumed",
        ) from None


def read_small(reader: Reader, name: str, *, limit: int) -> bytes:
    """A metadata file. Raises StoreError: REFUSED above `limit` bytes, UNAVAILABLE after the deadline."""
    chunks = read_file(reader, name, seconds=METADATA_SECONDS)
    return read_all(chunks, f"{reader.url}/{name}", limit=limit)


def read_all(chunks: Iterable[bytes], place: str, *, limit: int) -> bytes:
    """The chunks as one value. Raises StoreError, REFUSED when they exceed `limit` bytes."""
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > limit:
            what = f"{place} is larger than {limit} bytes"
            raise StoreError(ErrorKind.REFUSED, what, cause="it is not the expected object")
    return bytes(data)
