"""Little-endian integers and short strings of the image pack: a bounded cursor to read, an appending
writer.
"""

from __future__ import annotations

import struct

from aotforge.errors import PackError

STRING_LIMIT = 255
_FIRST_CHARACTER, _LAST_CHARACTER = 0x21, 0x7E


def damaged(file: str, reason: str) -> PackError:
    """The error of every strict reader: one file, one reason."""
    return PackError(
        f"{file}: {reason}",
        cause="the file is truncated, damaged, or not an image pack of format 1",
        hint="fetch or build the image pack again and compare it with SHA256SUMS",
    )


class Cursor:
    """Reads `data` from front to back; every read past the end raises PackError with the file's name and
    the offset.
    """

    def __init__(self, data: bytes, *, file: str, start: int = 0) -> None:
        self._data = data
        self._at = start
        self.file = file

    def take(self, size: int, what: str) -> bytes:
        """The next `size` bytes; `what` names them in the error."""
        end = self._at + size
        if end > len(self._data):
            raise self.error(f"ends within {what}")
        part = self._data[self._at : end]
        self._at = end
        return part

    def u8(self, what: str) -> int:
        """An unsigned byte."""
        return self.take(1, what)[0]

    def u16(self, what: str, low: int = 0, high: int = 0xFFFF) -> int:
        """An unsigned 16-bit integer within [low, high]."""
        return self._bounded("<H", what, low, high)

    def u32(self, what: str, low: int = 0, high: int = 0xFFFFFFFF) -> int:
        """An unsigned 32-bit integer within [low, high]."""
        return self._bounded("<I", what, low, high)

    def i64(self, what: str) -> int:
        """A signed 64-bit integer."""
        return int(struct.unpack("<q", self.take(8, what))[0])

    def small(self, what: str, low: int, high: int) -> int:
        """A byte within [low, high]."""
        return self._bounded("<B", what, low, high)

    def string(self, what: str) -> str:
        """A length byte (1 to 255) and so many characters 0x21 to 0x7E."""
        raw = self.take(self.small(f"the length of {what}", 1, STRING_LIMIT), what)
        if not all(_FIRST_CHARACTER <= c <= _LAST_CHARACTER for c in raw):
            raise self.error(f"{what} has a character outside printable ASCII")
        return raw.decode("ascii")

    def end(self) -> None:
        """Raises PackError unless every byte has been read."""
        left = len(self._data) - self._at
        if left:
            raise self.error(f"{left} bytes after the end")

    def error(self, reason: str) -> PackError:
        """PackError at the present offset."""
        return damaged(self.file, f"{reason} (offset {self._at})")

    def _bounded(self, code: str, what: str, low: int, high: int) -> int:
        value = int(struct.unpack(code, self.take(struct.calcsize(code), what))[0])
        if not low <= value <= high:
            raise self.error(f"{what} is {value}, allowed are {low} to {high}")
        return value


class Writer:
    """Appends integers and strings; a value that does not fit its field is a PackError, never wrapped
    around.
    """

    def __init__(self, *, file: str) -> None:
        self._parts = bytearray()
        self.file = file

    def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        self._parts += data

    def u8(self, value: int, what: str, high: int = 0xFF) -> None:
        """An unsigned byte of at most `high`."""
        self._integer("<B", value, what, 0, high)

    def u16(self, value: int, what: str, low: int = 0, high: int = 0xFFFF) -> None:
        """An unsigned 16-bit integer within [low, high]."""
        self._integer("<H", value, what, low, high)

    def u32(self, value: int, what: str, low: int = 0, high: int = 0xFFFFFFFF) -> None:
        """An unsigned 32-bit integer within [low, high]."""
        self._integer("<I", value, what, low, high)

    def i64(self, value: int, what: str) -> None:
        """A signed 64-bit integer."""
        self._integer("<q", value, what, -(2**63), 2**63 - 1)

    def string(self, value: str, what: str) -> None:
        """A length byte and the characters, 1 to 255 of 0x21 to 0x7E."""
        if not 1 <= len(value) <= STRING_LIMIT or not all(
            _FIRST_CHARACTER <= ord(c) <= _LAST_CHARACTER for c in value
        ):
            raise self.unfit(f"{what} {value!r} is not 1 to {STRING_LIMIT} printable ASCII characters")
        self.u8(len(value), what)
        self._parts += value.encode("ascii")

    def bytes(self) -> bytes:
        """Everything written so far."""
        return bytes(self._parts)

    def unfit(self, reason: str) -> PackError:
        """PackError for a plan that the format cannot hold."""
        return PackError(
            f"{self.file}: {reason}",
            cause="the rules ask for something that image pack format 1 cannot hold",
            hint="see docs/image-pack-format.md for the bounds",
        )

    def _integer(self, code: str, value: int, what: str, low: int, high: int) -> None:
        if not low <= value <= high:
            raise self.unfit(f"{what} is {value}, allowed are {low} to {high}")
        self._parts += struct.pack(code, value)
