"""The interface of stores. Object names are relative, joined by `/`, e.g. `0.11.2b-r1/SHA256SUMS`."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import SplitResult, urlsplit, urlunsplit

from aotforge.errors import UNAVAILABLE, PublishError

Content = Path | bytes
"""The content of an object: a file, or bytes."""

OnBytes = Callable[[int], None]
"""Called with the number of bytes that were just written or read."""

Sleep = Callable[[float], None]
"""Pauses for a number of seconds; replaced in tests."""

Clock = Callable[[], float]
"""Seconds of a monotonic clock; replaced in tests."""

CHUNK = 1024 * 1024
_ADDRESS = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*://(?:(?![a-zA-Z][a-zA-Z0-9+.-]*://)\S)*)")
ADDRESSES = "s3://, http(s)://, file:// or a folder"


class StoreError(PublishError, exit_code=UNAVAILABLE, kind="publish"):
    """A store's failure, also of a place that is only read. No text holds a secret."""


class MissingError(StoreError, exit_code=UNAVAILABLE, kind="publish"):
    """There is no such object."""


class ExistsError(StoreError, exit_code=UNAVAILABLE, kind="publish"):
    """The name is taken, or another version is there."""


class DeniedError(StoreError, exit_code=UNAVAILABLE, kind="publish"):
    """The credentials, or none, do not permit it."""


class Reader(Protocol):
    """A place to read releases from."""

    @property
    def url(self) -> str:
        """The place, without secrets."""

    def read(self, name: str, *, start: int = 0) -> Iterator[bytes]:
        """The bytes from `start` on, in pieces. Raises StoreError, MissingError."""


class ObjectStore(Reader, Protocol):
    """A place to publish releases to. Every method raises StoreError."""

    def size(self, name: str) -> int | None:
        """Bytes of an object, None when it is missing."""

    def names(self, prefix: str) -> Mapping[str, int]:
        """Objects whose names begin with `prefix`, with their sizes in bytes."""

    def put_if_absent(self, name: str, content: Content) -> None:
        """Creates an object atomically. Raises ExistsError."""

    def remove(self, name: str) -> None:
        """Deletes an object, if there is one. For caches: objects of releases are never removed."""

    def load(self, name: str, *, limit: int) -> tuple[bytes, str] | None:
        """A small object of at most `limit` bytes with a token of this version; None when there is none."""

    def compare_and_swap(self, name: str, data: bytes, *, token: str | None) -> None:
        """Replaces the version of `token` (None: creates the object). Raises ExistsError for another."""


def split_url(url: str) -> SplitResult:
    """The parts of an address. Raises StoreError, which does not quote the address: it may hold secrets."""
    try:
        parts = urlsplit(url)
        if parts.scheme in {"http", "https"} and "@" in f"{parts.path}{parts.query}{parts.fragment}":
            raise ValueError(
                "'@' behind the host is written %40, and '/', '?' and '#' in a password %2F, %3F and %23"
            )
        return parts
    except ValueError as error:
        what = f"an address is not understood: {error}"
        raise StoreError(what, hint=ADDRESSES) from None


def redact_url(url: str) -> str:
    """The address without user, password and query, which may hold secrets (a presigned URL's signature)."""
    if "://" not in url:
        return url
    parts = split_url(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")).rstrip("/")


def redact_urls(text: str) -> str:
    """The text with `redact_url` of each address in it; an address that is not valid is left out."""
    parts = _ADDRESS.split(text)
    for number, part in enumerate(parts):
        try:
            parts[number] = redact_url(part)
        except StoreError:
            parts[number] = "(an address that is not valid)"
    return "".join(parts)
