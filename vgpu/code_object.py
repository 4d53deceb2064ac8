"""Reader of AMDGPU code objects: the metadata note of an HSACO, decoded.

Compile workers run this in pinned root filesystems without msgpack, so MessagePack is decoded here.

Formats: ELF-64 little-endian; note `AMDGPU` of type 32 holds a MessagePack map (LLVM's "User Guide for AMDGPU
Backend", code object V5 metadata).
"""

import struct
from collections.abc import Iterator
from typing import Any

_NT_AMDGPU_METADATA = 32
_PT_NOTE = 4
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_SHORT = ((0, 0x7F, "number"), (0x80, 0x8F, "map"), (0x90, 0x9F, "array"), (0xA0, 0xBF, "text"))
"""First and last type code, which contains the number."""
_WIDE = (
    (0xCC, "number", (">B", ">H", ">I", ">Q", ">b", ">h", ">i", ">q")),
    (0xD9, "text", (">B", ">H", ">I")),
    (0xDC, "array", (">H", ">I")),
    (0xDE, "map", (">H", ">I")),
)
"""First type code, and layouts of the number that follows it: itself, or a size."""


class CodeObjectError(ValueError):
    """Bytes that are not an AMDGPU code object, or whose metadata cannot be read."""


def kernel_metadata(hsaco: bytes) -> dict[str, Any]:
    """The `amdhsa.kernels` entry of a code object with exactly one kernel. Raises CodeObjectError."""
    kernels = metadata(hsaco).get("amdhsa.kernels")
    if not isinstance(kernels, list) or len(kernels) != 1 or not isinstance(kernels[0], dict):
        raise CodeObjectError("not exactly one kernel in the code object")
    return kernels[0]


def metadata(hsaco: bytes) -> dict[str, Any]:
    """The complete metadata map. Raises CodeObjectError."""
    try:
        for kind, start, _, length, _ in segments(hsaco):
            if kind == _PT_NOTE and (found := _note(hsaco[start : start + length])) is not None:
                value = Unpacker(found).value()
                if isinstance(value, dict):
                    return value
    except (struct.error, IndexError, OverflowError, UnicodeDecodeError) as error:
        raise CodeObjectError(f"truncated or damaged: {error}") from error
    raise CodeObjectError("no AMDGPU metadata note")


def segments(data: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Kind, offset, address, bytes in the file and in memory of every program header of an ELF file."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise CodeObjectError("not a 64-bit little-endian ELF file")
    (start,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for index in range(count):
        header = struct.unpack_from("<IIQQQQQQ", data, start + index * size)
        yield header[0], header[2], header[3], header[5], header[6]


def _note(segment: bytes) -> bytes | None:
    position = 0
    while position + 12 <= len(segment):
        name_size, size, kind = struct.unpack_from("<III", segment, position)
        name = position + 12
        start = name + (name_size + 3) // 4 * 4
        if kind == _NT_AMDGPU_METADATA and segment[name : name + name_size] == b"AMDGPU\0":
            return segment[start : start + size]
        position = start + (size + 3) // 4 * 4
    return None


class Unpacker:
    """MessagePack as far as code objects use it: nil, booleans, integers, strings, arrays, maps."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def value(self, depth: int = 0) -> Any:
        """The next value. Raises CodeObjectError for other types, struct.error or IndexError past the end."""
        if depth > 16:
            raise CodeObjectError("metadata nested too deeply")
        code = self._bytes(1)[0]
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        kind, number = self._head(code)
        if kind == "number":
            return number
        if kind == "text":
            return self._bytes(number).decode()
        if kind == "array":
            return [self.value(depth + 1) for _ in range(number)]
        keys_and_values = ((self.value(depth + 1), self.value(depth + 1)) for _ in range(number))
        return {key if isinstance(key, str | int) else repr(key): value for key, value in keys_and_values}

    def _head(self, code: int) -> tuple[str, int]:
        for first, last, kind in _SHORT:
            if first <= code <= last:
                return kind, code - first
        if code >= 0xE0:
            return "number", code - 256
        for first, kind, layouts in _WIDE:
            if first <= code < first + len(layouts):
                layout = layouts[code - first]
                return kind, int(struct.unpack(layout, self._bytes(struct.calcsize(layout)))[0])
        raise CodeObjectError(f"MessagePack type 0x{code:02x}")

    def _bytes(self, size: int) -> bytes:
        if self._at + size > len(self._data):
            raise IndexError("past the end")
        self._at += size
        return self._data[self._at - size : self._at]
