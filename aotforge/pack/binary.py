"""Access to an image pack's files; reader and writer of little-endian integers and short strings."""

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from aotforge.errors import PackError
from aotforge.pack.model import FORMAT

T = TypeVar("T")
Kind = Literal["u8", "u16", "u32", "i64"]
"""Integer types of the format."""

FILE_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")
"""Names of a pack's files: ASCII, at most 64 characters, no dot in front."""

_CODES: Final = {"u8": "<B", "u16": "<H", "u32": "<I", "i64": "<q"}
_LIMITS: Final = {"u8": (0, 0xFF), "u16": (0, 0xFFFF), "u32": (0, 0xFFFFFFFF), "i64": (-(2**63), 2**63 - 1)}
_STRING_LIMIT = 255
_PRINTABLE = re.compile(r"[\x21-\x7e]+")


def damaged(file: str, reason: str) -> PackError:
    """The error of every strict reader: one file, one reason."""
    return PackError(
        f"{file}: {reason}",
        cause="the file is truncated, damaged, or not an image pack of format 1",
        hint="download or build the image pack again and compare it with SHA256SUMS",
    )


def check_version(file: str, version: int) -> None:
    """Raises PackError unless `version` is the format that this program reads."""
    if version != FORMAT:
        raise PackError(
            f"{file}: image pack format {version}, this program reads format {FORMAT}",
            cause="the image pack was made by another release",
            hint="use image pack and library of one release, or of releases with the same format version",
        )


def _bounds(kind: Kind, low: int | None, high: int | None) -> tuple[int, int]:
    least, most = _LIMITS[kind]
    return least if low is None else low, most if high is None else high


class _Unread:
    """The value of what is still to be read: so are its fields, and it has no items."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())


UNREAD: Any = _Unread()


class Cursor:
    """Reads `data` from front to back by the methods of `Writer`: values are ignored, and read ones returned.

    Every read past the end raises PackError with the file's name and the offset.
    """

    def __init__(self, data: bytes, *, file: str, start: int = 0) -> None:
        self._data = data
        self._at = start
        self.file = file

    def raw(self, size: int, what: str, value: bytes = b"") -> bytes:
        """The next `size` bytes."""
        end = self._at + size
        if end > len(self._data):
            raise self.error(f"ends within {what}")
        part = self._data[self._at : end]
        self._at = end
        return part

    def integer(
        self, kind: Kind, what: str, value: int = 0, low: int | None = None, high: int | None = None
    ) -> int:
        """An integer within [low, high]."""
        code, (low, high) = _CODES[kind], _bounds(kind, low, high)
        number = int(struct.unpack(code, self.raw(struct.calcsize(code), what))[0])
        if not low <= number <= high:
            raise self.error(f"{what} is {number}, allowed are {low} to {high}")
        return number

    def string(self, what: str, value: str = "") -> str:
        """A length byte (1 to 255) and that number of characters 0x21 to 0x7E."""
        text = self.raw(self.integer("u8", f"the length of {what}", low=1), what).decode("latin-1")
        if not _PRINTABLE.fullmatch(text):
            raise self.error(f"{what} has a character outside printable ASCII")
        return text

    def one_of(self, kind: Kind, what: str, entries: Sequence[T], value: T | None = None) -> T:
        """The entry whose index is stored."""
        return entries[self.integer(kind, what, low=0, high=len(entries) - 1)]

    def items(
        self, kind: Kind, what: str, item: Callable[[Any], T], values: Iterable[Any] = (), low: int = 0,
        high: int | None = None,
    ) -> tuple[T, ...]:  # fmt: skip
        """Items; memory grows with what has been read, so that no count can request more."""
        return tuple(item(UNREAD) for _ in range(self.integer(kind, what, low=low, high=high)))

    def end(self) -> None:
        """Raises PackError unless every byte has been read."""
        left = len(self._data) - self._at
        if left:
            raise self.error(f"{left} bytes after the end")

    def error(self, reason: str) -> PackError:
        """PackError at the present offset."""
        return damaged(self.file, f"{reason} (offset {self._at})")


class Writer:
    """Appends values. One that does not fit its field raises PackError and is never wrapped around. `what`
    names a field in errors; [low, high] are by default all values of its type."""

    def __init__(self, *, file: str) -> None:
        self._parts = bytearray()
        self.file = file

    def raw(self, size: int, what: str, value: bytes) -> bytes:
        """Bytes as they are."""
        self._parts += value
        return value

    def integer(
        self, kind: Kind, what: str, value: int, low: int | None = None, high: int | None = None
    ) -> int:
        """An integer within [low, high]."""
        low, high = _bounds(kind, low, high)
        if not low <= value <= high:
            raise self.error(f"{what} is {value}, allowed are {low} to {high}")
        self._parts += struct.pack(_CODES[kind], value)
        return value

    def string(self, what: str, value: str) -> str:
        """A length byte and the characters, 1 to 255 of 0x21 to 0x7E."""
        if len(value) > _STRING_LIMIT or not _PRINTABLE.fullmatch(value):
            raise self.error(f"{what} {value!r} is not 1 to {_STRING_LIMIT} printable ASCII characters")
        self.integer("u8", what, len(value))
        self._parts += value.encode("ascii")
        return value

    def one_of(self, kind: Kind, what: str, entries: Sequence[T], value: T) -> T:
        """The index of the entry."""
        self.integer(kind, what, entries.index(value))
        return value

    def items(
        self, kind: Kind, what: str, item: Callable[[Any], T], values: Iterable[Any], low: int = 0,
        high: int | None = None,
    ) -> tuple[T, ...]:  # fmt: skip
        """A count, and that number of items."""
        listed = tuple(values)
        self.integer(kind, what, len(listed), low, high)
        return tuple(map(item, listed))

    def bytes(self) -> bytes:
        """Everything written so far."""
        return bytes(self._parts)

    def error(self, reason: str) -> PackError:
        """PackError for a plan that the format cannot hold."""
        return PackError(
            f"{self.file}: {reason}",
            cause="the rules need something that image pack format 1 cannot hold",
            hint="see docs/image-pack-format.md for the bounds",
        )


Stream = Cursor | Writer
"""Where the steps that read a file and write it are the same."""


@dataclass(frozen=True)
class Source:
    """A file of a pack: its name in errors, and its bytes."""

    name: str
    data: bytes
