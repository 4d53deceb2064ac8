"""Windows modules read from their bytes, intact and damaged; definition files of forwarders."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotforge.errors import RuntimeBuildError, UnsupportedError
from aotforge.formats.pe import Export, exports, imports, read_module
from aotforge.library.forwarder import forwarder_definition

_BASE = 0x1000


def module() -> bytes:
    """One section at 0x1000 (file offset 0x200, not executable): two exports, of which one forwards, and one
    import."""
    body = bytearray(0x200)
    texts = {0x80: b"data", 0x90: b"there", 0xA0: b"other.there", 0xB0: b"system.DLL"}
    for at, text in texts.items():
        body[at : at + len(text)] = text
    struct.pack_into("<IIIIII", body, 16, 5, 2, 2, _BASE + 0x28, _BASE + 0x30, _BASE + 0x38)
    struct.pack_into("<II", body, 0x28, _BASE + 0x100, _BASE + 0xA0)
    struct.pack_into("<II", body, 0x30, _BASE + 0x80, _BASE + 0x90)
    struct.pack_into("<HH", body, 0x38, 0, 1)
    struct.pack_into("<I", body, 0xC0 + 12, _BASE + 0xB0)
    head = bytearray(0x200)
    head[:2] = b"MZ"
    struct.pack_into("<I", head, 0x3C, 0x40)
    head[0x40:0x44] = b"PE\0\0"
    struct.pack_into("<H", head, 0x46, 1)
    struct.pack_into("<H", head, 0x54, 240)
    struct.pack_into("<H", head, 0x58, 0x20B)
    struct.pack_into("<I", head, 0x58 + 32, 0x1000)
    struct.pack_into("<I", head, 0x58 + 108, 16)
    struct.pack_into("<IIII", head, 0x58 + 112, _BASE, 0xB0, _BASE + 0xC0, 40)
    struct.pack_into("<IIII12xI", head, 0x58 + 240 + 8, 0x200, _BASE, 0x200, 0x200, 0x40000040)
    return bytes(head + body)


def test_exports_and_imports_are_read() -> None:
    assert exports(module()) == (
        Export(name="data", ordinal=5, data=True, forward=None),
        Export(name="there", ordinal=6, data=False, forward="other.there"),
    )
    assert imports(module()) == ("SYSTEM.DLL",)


def test_a_forward_is_an_import_and_every_table_is_listed() -> None:
    """The loader loads the module of a forward, and those of delayed imports (13) or beside a manifest
    (2)."""
    data = bytearray(module())
    assert read_module(module()).imports == ("OTHER.DLL", "SYSTEM.DLL")
    struct.pack_into("<II", data, 0x58 + 112 + 8 * 13, _BASE + 0xC0, 40)
    assert read_module(bytes(data)).tables == (0, 1, 13)
    struct.pack_into("<I", data, 0x58 + 108, 1)
    assert read_module(bytes(data)).tables == (0,) and imports(bytes(data)) == ()


@given(st.lists(st.tuples(st.integers(0, 0x3FF), st.integers(0, 255)), max_size=6), st.integers(0, 0x400))
def test_damaged_modules_are_refused_or_read(changes: list[tuple[int, int]], length: int) -> None:
    data = bytearray(module())
    for at, value in changes:
        data[at] = value
    for read in (exports, imports, read_module):
        with contextlib.suppress(RuntimeBuildError):
            read(bytes(data[:length]))


def test_a_module_that_ends_early_is_refused() -> None:
    """Up to the last byte that each reader needs: the end of the last name, and of the entry that ends the
    imports."""
    complete = module()
    data = bytearray(complete[: 0x58 + 112 + 8 * 15])  # the header ends within its tables
    struct.pack_into("<H", data, 0x46, 0)
    struct.pack_into("<IIII", data, 0x58 + 112, 0, 0, 0, 0)
    with pytest.raises(RuntimeBuildError, match="a damaged Windows module"):
        read_module(bytes(data))
    for read, end in ((exports, 0x2AC), (imports, 0x2E4)):
        assert read(complete[:end]) == read(complete)
        for length in range(end):
            with pytest.raises(RuntimeBuildError, match=r"a damaged Windows module|not a"):
                read(complete[:length])


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (0x00, "does not begin with MZ"),
        (0x41, "not a 64-bit Windows module"),
        (0x58, "not a 64-bit Windows module"),
        (0x58 + 112 + 1, "nothing is loaded at 0xee10"),  # the table of exports
        (0x200 + 0x39, "not every name has a function"),
    ],
)
def test_each_damage_is_named(at: int, reason: str) -> None:
    data = bytearray(module())
    data[at] = 0xEE
    with pytest.raises(RuntimeBuildError, match=reason):
        exports(bytes(data))


def symbol(name: str | None, data: bool = False) -> Export:
    return Export(name=name, ordinal=1, data=data, forward=None)


def test_a_forwarder_names_every_symbol() -> None:
    text = forwarder_definition(
        "old.dll", "aotriton_v2.dll", [symbol("f"), symbol("?g@@YAHXZ"), symbol("d", True)]
    )
    assert text == (
        'LIBRARY "old.dll"\nEXPORTS\n  "f" = aotriton_v2."f"\n'
        '  "?g@@YAHXZ" = aotriton_v2."?g@@YAHXZ"\n  "d" = aotriton_v2."d" DATA\n'
    )


@pytest.mark.parametrize(
    ("name", "target", "symbols"),
    [
        ("a.0.dll", "b.dll", [symbol("f")]),
        ("a.dll", "b.1.dll", [symbol("f")]),
        ("a", "b.dll", [symbol("f")]),
        ("B.dll", "b.dll", [symbol("f")]),
        ("a.dll", "b.dll", [symbol(None)]),
        ("a.dll", "b.dll", [symbol('f"\nEXPORTS g')]),
    ],
)
def test_what_cannot_be_forwarded_is_refused(name: str, target: str, symbols: list[Export]) -> None:
    with pytest.raises(UnsupportedError):
        forwarder_definition(name, target, symbols)
