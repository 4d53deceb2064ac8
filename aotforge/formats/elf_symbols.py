"""Bound of the symbols of an image that others made: each can have a name of 4 kB."""

import struct

_SHT_SYMTAB, _SHT_DYNSYM = 2, 11
_SYMBOL_BYTES = 24
_MOST_SYMBOLS = 4096
"""Compilers write about 15."""


def check_symbols(image: bytes) -> None:
    """Raises ValueError for an ELF file of more symbols than an image has; other files pass."""
    if image[:6] != b"\x7fELF\x02\x01" or len(image) < 64:
        return
    (start,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    headers = (start + number * size for number in range(count))
    tables = [struct.unpack_from("<I24xQ", image, at + 4) for at in headers if at + 64 <= len(image)]
    symbols = sum(length for kind, length in tables if kind in {_SHT_SYMTAB, _SHT_DYNSYM}) // _SYMBOL_BYTES
    if symbols > _MOST_SYMBOLS:
        raise ValueError(f"it has {symbols} symbols, {_MOST_SYMBOLS} are allowed")
