"""Cache entries and code-object notes as bytes: only what was written is read back."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from aotforge.base.object_cache import DamagedObjectError
from aotforge.compile.cache_entry import Entry, Summary, decode, encode
from aotforge.targets.backend import CodeObjectStats, KernelArgument
from vgpu.code_object import CodeObjectError, Unpacker, kernel_metadata, metadata


def make_entry(hsaco: bytes = b"\x7fELF...", asm: str = "s_endpgm") -> Entry:
    import hashlib

    packed = zstandard.compress(asm.encode())
    stats = CodeObjectStats(
        registers=8,
        accumulation_registers=0,
        scalar_registers=16,
        spilled_registers=0,
        spilled_scalar_registers=0,
        scratch_bytes=0,
        static_shared_bytes=0,
        dynamic_shared_bytes=512,
        warp_size=64,
        num_warps=4,
    )
    summary = Summary(
        key="ab" * 32,
        digest=hashlib.sha256(hsaco).hexdigest(),
        symbol="k",
        stats=stats,
        arguments=(KernelArgument(offset=0, size=8, kind="global_buffer"),),
        binary_size=len(hsaco),
        asm_size=len(packed),
    )
    return Entry(summary=summary, binary=hsaco, asm_zstd=packed)


@given(st.binary(max_size=200), st.text(max_size=100))
def test_entries_round_trip(hsaco: bytes, asm: str) -> None:
    entry = make_entry(hsaco, asm)
    again = decode(encode(entry), entry.summary.key)
    assert again == entry
    assert again.asm() == asm
    assert encode(again) == encode(entry)


@given(st.data())
def test_any_changed_lost_or_added_byte_is_detected(data: st.DataObject) -> None:
    good = encode(make_entry())
    where = data.draw(st.integers(0, len(good) - 1))
    flip = data.draw(st.integers(1, 255))
    for bad in (
        good[:where] + bytes([good[where] ^ flip]) + good[where + 1 :],
        good[:where],
        good[:where] + data.draw(st.binary(min_size=1, max_size=3)) + good[where:],
    ):
        if bad != good:
            with pytest.raises(DamagedObjectError):
                decode(bad, "ab" * 32)


def test_an_entry_under_another_key_is_detected() -> None:
    with pytest.raises(DamagedObjectError, match="is the entry of abab"):
        decode(encode(make_entry()), "cd" * 32)


def pack(value: Any) -> bytes:
    """MessagePack by the specification, widest forms chosen by size; the reader's peer in this test."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        if -32 <= value < 128:
            return struct.pack("b", value)
        return b"\xcf" + struct.pack(">Q", value) if value >= 0 else b"\xd3" + struct.pack(">q", value)
    if isinstance(value, str):
        data = value.encode()
        return (
            bytes([0xA0 | len(data)]) if len(data) < 32 else b"\xda" + struct.pack(">H", len(data))
        ) + data
    if isinstance(value, list):
        head = bytes([0x90 | len(value)]) if len(value) < 16 else b"\xdc" + struct.pack(">H", len(value))
        return head + b"".join(map(pack, value))
    head = bytes([0x80 | len(value)]) if len(value) < 16 else b"\xde" + struct.pack(">H", len(value))
    return head + b"".join(pack(key) + pack(entry) for key, entry in value.items())


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=8), inner, max_size=20),
    max_leaves=30,
)


@given(_VALUES)
def test_message_pack_is_read_as_written(value: Any) -> None:
    assert Unpacker(pack(value)).value() == value


@given(st.binary(max_size=300))
def test_hostile_code_objects_give_one_error(data: bytes) -> None:
    for candidate in (data, b"\x7fELF\x02\x01" + data, _elf(data)):
        with pytest.raises(CodeObjectError):
            kernel_metadata(candidate)


def test_a_minimal_code_object_is_read() -> None:
    assert metadata(_elf(pack({"amdhsa.kernels": [{".name": "k"}]})))["amdhsa.kernels"] == [{".name": "k"}]
    with pytest.raises(CodeObjectError, match="not exactly one kernel"):
        kernel_metadata(_elf(pack({"amdhsa.kernels": []})))


def _elf(note: bytes) -> bytes:
    header = (
        b"\x7fELF\x02\x01".ljust(0x20, b"\0") + struct.pack("<Q", 64) + bytes(14) + struct.pack("<HH", 56, 1)
    )
    body = struct.pack("<III", 7, len(note), 32) + b"AMDGPU\0\0" + note + bytes(-len(note) % 4)
    return header.ljust(64, b"\0") + struct.pack("<IIQQQQQQ", 4, 4, 120, 0, 0, len(body), len(body), 4) + body
