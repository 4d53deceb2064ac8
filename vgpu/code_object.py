"""Reader of AMDGPU code objects: the metadata note of an HSACO, decoded.

Compile workers run this in pinned root filesystems without msgpack, so MessagePack is decoded here.

Formats: ELF-64 little-endian; note `AMDGPU` of type 32 holds a MessagePack map (LLVM's "User Guide for AMDGPU
Backend", code object V5 metadata).
"""

import struct
from typing import Any

_NT_AMDGPU_METADATA = 32
_PT_NOTE = 4
_MOST_HEADERS = 64
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS, _TEXTS, _ARRAYS, _MAPS = 0xCC, 0xD9, 0xDC, 0xDE
_LAYOUTS = {
    first + index: layout
    for first, layouts in (
        (_NUMBERS, (">B", ">H", ">I", ">Q", ">b", ">h", ">i", ">q")),
        (_TEXTS, (">B", ">H", ">I")),
        (_ARRAYS, (">H", ">I")),
        (_MAPS, (">H", ">I")),
    )
    for index, layout in enumerate(layouts)
}
"""The number after a type code: itself, or the size of a text, array or map."""


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
    if hsaco[:6] != b"\x7fELF\x02\x01":
        raise CodeObjectError("not a 64-bit little-endian ELF file")
    try:
        (offset,) = struct.unpack_from("<Q", hsaco, 0x20)
        size, count = struct.unpack_from("<HH", hsaco, 0x36)
        if count > _MOST_HEADERS:
            raise CodeObjectError(f"{count} program headers")
        for index in range(count):
            kind, _, start, _, _, length = struct.unpack_from("<IIQQQQ", hsaco, offset + index * size)
            if kind == _PT_NOTE and (found := _note(hsaco[start : start + length])) is not None:
                value = Unpacker(found).value()
                if isinstance(value, dict):
                    return value
    except (struct.error, IndexError, OverflowError, UnicodeDecodeError) as error:
        raise CodeObjectError(f"truncated or damaged: {error}") from error
    raise CodeObjectError("no AMDGPU metadata note")


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

    def value(self, depth: int = 0) -> object:
        """The next value. Raises CodeObjectError for other types, struct.error or IndexError past the end."""
        if depth > 16:
            raise CodeObjectError("metadata nested too deeply")
        code = self._data[self._at]
        self._at += 1
        if code <= 0x7F:
            return code
        if code >= 0xE0:
            return code - 256
        if code <= 0x8F:
            return self._map(code & 15, depth)
        if code <= 0x9F:
            return [self.value(depth + 1) for _ in range(code & 15)]
        if code <= 0xBF:
            return self._text(code & 31)
        return self._wide(code, depth)

    def _wide(self, code: int, depth: int) -> object:
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code not in _LAYOUTS:
            raise CodeObjectError(f"MessagePack type 0x{code:02x}")
        number = self._number(_LAYOUTS[code])
        if code >= _MAPS:
            return self._map(number, depth)
        if code >= _ARRAYS:
            return [self.value(depth + 1) for _ in range(number)]
        return self._text(number) if code >= _TEXTS else number

    def _number(self, layout: str) -> int:
        (value,) = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return int(value)

    def _text(self, size: int) -> str:
        if self._at + size > len(self._data):
            raise IndexError("text past the end")
        text = self._data[self._at : self._at + size].decode("utf-8")
        self._at += size
        return text

    def _map(self, count: int, depth: int) -> dict[object, object]:
        result: dict[object, object] = {}
        for _ in range(count):
            key = self.value(depth + 1)
            result[key if isinstance(key, str | int) else repr(key)] = self.value(depth + 1)
        return result
