"""Reader of exports, imports and header fields of 64-bit Windows modules."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aotforge.errors import RuntimeBuildError

HIGH_ENTROPY, DYNAMIC_BASE, NX_COMPATIBLE = 0x20, 0x40, 0x100
"""Of `characteristics`: addresses from all 64 bits, at random; data that cannot be executed."""

_PE32_PLUS = 0x20B
_EXECUTABLE = 0x20000000
_NAME_LIMIT = 4096
_MOST_TABLES = 16


@dataclass(frozen=True, kw_only=True)
class Export:
    """`name`: None for exports by number only. `forward`: "module.name" of the function that replaces it."""

    name: str | None
    ordinal: int
    data: bool
    forward: str | None


@dataclass(frozen=True, kw_only=True)
class Module:
    """`imports`: modules that it imports or forwards exports to, in capitals. `tables`: data directories.

    `link_time`: the linker's field, 0 for none. `characteristics`: HIGH_ENTROPY and the others.
    """

    imports: tuple[str, ...]
    exports: tuple[str, ...]
    tables: tuple[int, ...]
    link_time: int
    characteristics: int


@contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except struct.error as error:
        raise RuntimeBuildError(f"a damaged Windows module: {error}") from error


class _Image:
    """Sections and data directories."""

    @_damage()
    def __init__(self, data: bytes) -> None:
        self.data = data
        if data[:2] != b"MZ":
            raise RuntimeBuildError("not a Windows module: it does not begin with MZ")
        start = self.number("<I", 0x3C)
        if data[start : start + 4] != b"PE\0\0" or self.number("<H", start + 24) != _PE32_PLUS:
            raise RuntimeBuildError("not a 64-bit Windows module")
        count, optional = self.number("<H", start + 6), self.number("<H", start + 20)
        self.tables = start + 24 + 112
        self.sections = [
            struct.unpack_from("<IIII12xI", data, start + 24 + optional + 40 * index + 8)
            for index in range(count)
        ]

    def number(self, form: str, offset: int) -> int:
        return int(struct.unpack_from(form, self.data, offset)[0])

    def table(self, index: int) -> tuple[int, int]:
        """Address and size of a data directory; zeros for one behind their number."""
        if index >= self.number("<I", self.tables - 4):
            return 0, 0
        return self.number("<I", self.tables + 8 * index), self.number("<I", self.tables + 8 * index + 4)

    def is_executable(self, address: int) -> bool:
        """Whether what is loaded at `address` is code."""
        return bool(self._section(address)[4] & _EXECUTABLE)

    def offset(self, address: int) -> int:
        """Place in the file of what is loaded at `address`."""
        _, start, stored, offset, _ = self._section(address)
        if address >= start + stored:
            raise RuntimeBuildError(f"a damaged Windows module: {address:#x} is not in the file")
        return int(offset + address - start)

    def _section(self, address: int) -> tuple[int, ...]:
        for section in self.sections:
            if section[1] <= address < section[1] + max(section[0], section[2]):
                return section
        raise RuntimeBuildError(f"a damaged Windows module: nothing is loaded at {address:#x}")

    def at(self, form: str, address: int) -> int:
        return self.number(form, self.offset(address))

    def text(self, address: int) -> str:
        offset = self.offset(address)
        end = self.data.find(b"\0", offset, offset + _NAME_LIMIT)
        if end < 0:
            raise RuntimeBuildError("a damaged Windows module: a name does not end")
        return self.data[offset:end].decode("ascii", "backslashreplace")


@_damage()
def exports(data: bytes) -> tuple[Export, ...]:
    """Everything that a module exports, by ordinal. Raises RuntimeBuildError."""
    image, made = _Image(data), list[Export]()
    table, size = image.table(0)
    if table == 0:
        return ()
    base, functions, names, addresses, texts, indices = (image.at("<I", table + 16 + 4 * i) for i in range(6))
    named: dict[int, list[str]] = {}
    for i in range(names):
        text = image.text(image.at("<I", texts + 4 * i))
        named.setdefault(image.at("<H", indices + 2 * i), []).append(text)
    if named and max(named) >= functions:
        raise RuntimeBuildError("a damaged Windows module: not every name has a function")
    for i in range(functions):
        address = image.at("<I", addresses + 4 * i)
        if address == 0:
            continue
        forward = image.text(address) if table <= address < table + size else None
        is_data = forward is None and not image.is_executable(address)
        for name in named.get(i, [None]):
            made.append(Export(name=name, ordinal=base + i, data=is_data, forward=forward))
    return tuple(made)


@_damage()
def read_module(data: bytes) -> Module:
    """Reads a 64-bit module. Raises RuntimeBuildError for anything else."""
    image, exported = _Image(data), exports(data)
    forwards = {f"{export.forward.rpartition('.')[0]}.DLL".upper() for export in exported if export.forward}
    return Module(
        imports=tuple(sorted({*imports(data), *forwards})),
        exports=tuple(entry.name for entry in exported if entry.name),
        tables=tuple(index for index in range(_MOST_TABLES) if any(image.table(index))),
        link_time=image.number("<I", image.tables - 112 - 24 + 8),
        characteristics=image.number("<H", image.tables - 112 + 70),
    )


@_damage()
def imports(data: bytes) -> tuple[str, ...]:
    """Names of a module's import directory, in capitals, sorted. Raises RuntimeBuildError."""
    image, names = _Image(data), set()
    entry, _ = image.table(1)
    while entry and image.at("<I", entry + 12):
        names.add(image.text(image.at("<I", entry + 12)).upper())
        entry += 20
    return tuple(sorted(names))
