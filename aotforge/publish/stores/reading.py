"""Bounded reads from stores: sizes and deadlines."""

from collections.abc import Iterable, Iterator

from aotforge.base.downloads import FILE_SECONDS, within
from aotforge.publish.stores.store import ErrorKind, Reader, StoreError

METADATA_SECONDS = 120.0
"""Deadline of a metadata file."""


def read_file(reader: Reader, name: str, *, start: int = 0) -> Iterator[bytes]:
    """A file that may be large, from `start` on. Raises StoreError: UNAVAILABLE after `FILE_SECONDS`."""
    return _before_deadline(reader.read(name, start=start), f"{reader.url}/{name}", FILE_SECONDS)


def read_metadata(reader: Reader, name: str) -> Iterator[bytes]:
    """A metadata file. Raises StoreError: UNAVAILABLE after `METADATA_SECONDS`."""
    return _before_deadline(reader.read(name), f"{reader.url}/{name}", METADATA_SECONDS)


def _before_deadline(chunks: Iterable[bytes], place: str, seconds: float) -> Iterator[bytes]:
    try:
        yield from within(seconds, chunks)
    except TimeoutError:
        raise StoreError(
            ErrorKind.UNAVAILABLE,
            f"{place} was not complete after {seconds:.0f} s",
            cause="the server is slow, or delays it on purpose",
            hint="use another mirror, or try again later; a file that was begun is resumed",
        ) from None


def read_small(reader: Reader, name: str, *, limit: int) -> bytes:
    """A metadata file. Raises StoreError: REFUSED behind `limit` bytes, UNAVAILABLE after the deadline."""
    return collect(read_metadata(reader, name), f"{reader.url}/{name}", limit=limit)


def collect(chunks: Iterable[bytes], place: str, *, limit: int) -> bytes:
    """The chunks as one value. Raises StoreError, REFUSED when they exceed `limit` bytes."""
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > limit:
            what = f"{place} is larger than {limit} bytes"
            raise StoreError(ErrorKind.REFUSED, what, cause="it is not the expected object")
    return bytes(data)
