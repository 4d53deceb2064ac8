"""Bounded reads from stores: sizes, deadlines, and the continuation of broken downloads."""

import time
from collections.abc import Callable, Iterable, Iterator

from aotforge.base.downloads import FILE_SECONDS, within
from aotforge.errors import UNAVAILABLE
from aotforge.publish.stores.store import Reader, Sleep, StoreError

METADATA_SECONDS = 120.0
"""Deadline of a metadata file."""

ATTEMPTS = 5
AGAIN = "run the same command again: it continues where it stopped"


class TransientError(StoreError, exit_code=UNAVAILABLE, kind="publish"):
    """A failure that may be over at the next attempt."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(
            f"{place} cannot be read: {reason}",
            cause="the server or the network failed",
            hint=AGAIN,
        )


def retry(
    open_at: Callable[[int], Iterator[bytes]], start: int, sleep: Sleep = time.sleep
) -> Iterator[bytes]:
    """The bytes from `start` on; after a TransientError, of which `ATTEMPTS` in a row are raised, `open_at`
    gives the rest."""
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
                error.cause += f" {ATTEMPTS} times"
                raise
            sleep(0.5 * 2**failures)


def read_file(reader: Reader, name: str, *, start: int = 0, seconds: float | None = None) -> Iterator[bytes]:
    """A file, from `start` on. Raises StoreError, also after `seconds`."""
    try:
        yield from within(seconds or FILE_SECONDS, reader.read(name, start=start))
    except TimeoutError:
        raise StoreError(
            f"{reader.url}/{name} was not complete after {seconds or FILE_SECONDS:.0f} s",
            cause="the server is slow, or delays it on purpose",
            hint="use another mirror, or try again later; a file that was begun is resumed",
        ) from None


def read_small(reader: Reader, name: str, *, limit: int) -> bytes:
    """A metadata file. Raises StoreError, also above `limit` bytes and after the deadline."""
    chunks = read_file(reader, name, seconds=METADATA_SECONDS)
    return read_all(chunks, f"{reader.url}/{name}", limit=limit)


def read_all(chunks: Iterable[bytes], place: str, *, limit: int) -> bytes:
    """The chunks as one value. Raises StoreError when they exceed `limit` bytes."""
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > limit:
            raise StoreError(f"{place} is larger than {limit} bytes", cause="it is not the expected object")
    return bytes(data)
