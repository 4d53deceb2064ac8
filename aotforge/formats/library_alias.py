"""Writer of shared libraries (x86-64) without code, which give another library a second name.

A program that needs the name gets the dependency's symbols, as from a link of that name, where no links are
possible:
in a wheel, or for a library that a program loads first. The bytes depend on the two names only.
"""

import struct

_PAGE = 0x1000
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_IDENT = b"\x7fELF\x02\x01\x01" + bytes(9)
_SHARED, _X86_64 = 3, 62
_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_READ, _WRITE = 4, 2
_STRTAB, _HASH, _DYNAMIC, _DYNSYM = 3, 5, 6, 11
_ALLOC, _WRITABLE = 2, 1
_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME, _DT_RUNPATH = (
    *(1, 4, 5, 6, 10, 11),
    *(14, 29),
)
_SYMBOL_BYTES = 24
_SEGMENTS = 3


def library_alias(name: str, target: str) -> bytes:
    """The library `name`, which depends on the library `target` beside it. Both are SONAMEs."""
    strings = b"\0" + b"\0".join(text.encode("ascii") for text in (name, target, "$ORIGIN")) + b"\0"
    at_name = 1
    at_target = at_name + len(name) + 1
    at_origin = at_target + len(target) + 1
    start = _HEADER.size + _SEGMENTS * _SEGMENT.size
    # one segment, which is writable because the loader relocates the dynamic section in place
    pieces, places = bytearray(), {}
    for section, data in (
        (".hash", struct.pack("<4I", 1, 1, 0, 0)),  # one bucket and chain, both empty
        (".dynsym", bytes(_SYMBOL_BYTES)),
        (".dynstr", strings),
    ):
        pieces += bytes(-len(pieces) % 8)
        places[section] = (start + len(pieces), len(data))
        pieces += data
    pieces += bytes(-len(pieces) % 8)
    tags = (
        (_DT_NEEDED, at_target),
        (_DT_SONAME, at_name),
        (_DT_RUNPATH, at_origin),
        (_DT_HASH, places[".hash"][0]),
        (_DT_STRTAB, places[".dynstr"][0]),
        (_DT_SYMTAB, places[".dynsym"][0]),
        (_DT_STRSZ, len(strings)),
        (_DT_SYMENT, _SYMBOL_BYTES),
        (0, 0),
    )
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in tags)
    places[".dynamic"] = (start + len(pieces), len(dynamic))
    pieces += dynamic
    names = b"\0.hash\0.dynsym\0.dynstr\0.dynamic\0.shstrtab\0"
    end = start + len(pieces)
    headers = end + len(names) + (-(end + len(names)) % 8)
    at, size = places[".dynamic"]
    segments = (
        (_PT_LOAD, _READ | _WRITE, 0, 0, 0, end, end, _PAGE),
        (_PT_DYNAMIC, _READ | _WRITE, at, at, at, size, size, 8),
        (_PT_GNU_STACK, _READ | _WRITE, 0, 0, 0, 0, 0, 16),  # absent, it would mean an executable stack
    )
    table = _sections(names, places, end)
    header = _HEADER.pack(
        *(_IDENT, _SHARED, _X86_64, 1, 0, _HEADER.size, headers, 0),
        *(_HEADER.size, _SEGMENT.size, _SEGMENTS, _SECTION.size, len(table), len(table) - 1),
    )
    body = header + b"".join(_SEGMENT.pack(*entry) for entry in segments) + bytes(pieces) + names
    return body + bytes(headers - len(body)) + b"".join(_SECTION.pack(*entry) for entry in table)


def _sections(names: bytes, places: dict[str, tuple[int, int]], end: int) -> list[tuple[int, ...]]:
    """Section headers, which tools read and the loader does not; the last is that of their `names`, at
    `end`."""

    def row(
        name: str, kind: int, flags: int, link: int = 0, *, info: int = 0, entry: int = 0
    ) -> tuple[int, ...]:
        at, size = places[name]
        return names.index(name.encode() + b"\0"), kind, flags, at, at, size, link, info, 8, entry

    return [
        (0,) * 10,
        row(".hash", _HASH, _ALLOC, 2, entry=4),
        row(".dynsym", _DYNSYM, _ALLOC, 3, info=1, entry=_SYMBOL_BYTES),
        row(".dynstr", _STRTAB, _ALLOC),
        row(".dynamic", _DYNAMIC, _ALLOC | _WRITABLE, 3, entry=16),
        (names.index(b".shstrtab\0"), _STRTAB, 0, 0, end, len(names), 0, 0, 1, 0),
    ]
