"""What every store offers. Names are relative, parts joined by `/`, e.g. `0.11.2b-r1/SHA256SUMS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

Content = Path | bytes
"""What is put into a store: a file, or bytes."""

OnBytes = Callable[[int], None]
"""Told of so many more bytes that are in the store or were read from it."""

CHUNK = 1024 * 1024


class ErrorKind(Enum):
    """Why a store did not do what it was asked."""

    MISSING = "missing"
    EXISTS = "exists"
    DENIED = "denied"
    UNAVAILABLE = "unavailable"
    FULL = "full"
    REFUSED = "refused"


class StoreError(Exception):
    """A store's failure before a room makes its own error of it; the texts hold no secret. `what` names place and object."""

    def __init__(self, kind: ErrorKind, what: str, *, cause: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.kind = kind
        self.what = what
        self.cause = cause
        self.hint = hint


@dataclass(frozen=True, kw_only=True)
class Guarantees:
    """What a store was found to honour. `put`: an object is never put over another; `large`: nor one that is uploaded in parts;
    `swap`: an object is only replaced when it is still the one that was read.
    """

    put: bool
    large: bool
    swap: bool

    def notes(self, url: str) -> tuple[str, ...]:
        """What a publisher must know when something is not honoured; empty when all is."""
        if self.put and self.large and self.swap:
            return ()
        lost = []
        if not self.put:
            lost.append("conditional writes")
        elif not self.large:
            lost.append(
                "conditional completion of multipart uploads (files are sent whole instead, without resume)"
            )
        if not self.swap:
            lost.append("conditional replacement")
        race = "" if self.put and self.swap else (
            ": existing objects are looked for before each write, which another publisher can slip in between; let one publish at a time"
        )  # fmt: skip
        return (f"{url} does not honour {' and '.join(lost)}{race}",)


class Reader(Protocol):
    """Somewhere releases can be read."""

    @property
    def url(self) -> str:
        """The place, fit to be printed."""

    def size(self, name: str) -> int | None:
        """Bytes of an object, None when there is none or the place does not say. Raises StoreError."""

    def read(self, name: str, *, start: int = 0) -> Iterator[bytes]:
        """The bytes from `start` on, in pieces. Raises StoreError, MISSING when there is no such object."""


class Store(Reader, Protocol):
    """Somewhere releases can be published. Every method raises StoreError."""

    def probe(self) -> Guarantees:
        """Finds out, by trying, what the place honours. Writes at most one constant object outside of every release."""

    def names(self, prefix: str) -> Mapping[str, int]:
        """Objects whose names begin with `prefix`, with their sizes in bytes."""

    def put_if_absent(self, name: str, content: Content, *, on_bytes: OnBytes | None = None) -> None:
        """Makes an object, whole or not at all; goes on with an earlier upload that was cut off. EXISTS when the name is taken."""

    def load(self, name: str, *, limit: int) -> tuple[bytes, str] | None:
        """A small object of at most `limit` bytes with a token of this version; None when there is none."""

    def compare_and_swap(self, name: str, data: bytes, *, token: str | None) -> None:
        """Replaces the version that `token` stands for (None: makes the object). EXISTS when another version is there by now."""


def content_size(content: Content) -> int:
    """Bytes of what is to be put."""
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def read_chunks(path: Path, start: int = 0) -> Iterator[bytes]:
    """A file's bytes from `start` on, at most CHUNK at a time."""
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        while chunk := file.read(CHUNK):
            yield chunk


def read_small(reader: Reader, name: str, *, limit: int) -> bytes:
    """A whole object of at most `limit` bytes. Raises StoreError, REFUSED when it is larger."""
    data = bytearray()
    for chunk in reader.read(name):
        data += chunk
        if len(data) > limit:
            raise StoreError(
                ErrorKind.REFUSED,
                f"{reader.url}/{name} is larger than {limit} bytes",
                cause="it is not what it should be",
            )
    return bytes(data)
