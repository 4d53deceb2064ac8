"""Bounded reads from stores: sizes, a deadline for metadata, a least average rate for everything."""

import time
from collections.abc import Iterable, Iterator

from aotforge.base import paced_http
from aotforge.base.paced_http import LEAST_RATE, Clock
from aotforge.publish.stores.store import ErrorKind, Reader, StoreError, redact_url

METADATA_SECONDS = 120.0
"""Deadline for a metadata file."""

_HINT = "use another mirror, or try again later; a file that was begun is resumed"


class Pace(paced_http.Pace):
    """As its base, with StoreErrors."""

    def too_slow(self, what: str) -> StoreError:
        """UNAVAILABLE."""
        cause = f"the server has less than {LEAST_RATE} bytes/s, on purpose or under load"
        return StoreError(ErrorKind.UNAVAILABLE, what, cause=cause, hint=_HINT)

    def other_scheme(self, old: str, scheme: str) -> StoreError:
        """REFUSED."""
        return StoreError(
            ErrorKind.REFUSED,
            f"{redact_url(old)} redirects to {scheme}, which is not followed",
            cause="the server is misconfigured, or its answers are changed on the way",
            hint="use another mirror, and inform the publisher",
        )


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
