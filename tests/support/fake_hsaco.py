"""Code objects that metadata readers accept: an ELF file with the AMDGPU metadata note and nothing to
execute.

Layout after LLVM's AMDGPU usage guide (code object V5 note records) and the msgpack specification.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SIZES = {"ptr": 8, "i32": 4, "i64": 8, "u64": 8, "f32": 4}


@dataclass(frozen=True, kw_only=True)
class FakeKernel:
    symbol: str
    types: Sequence[str]
    lds_bytes: int = 0
    max_threads: int = 1024


def msgpack(value: object) -> bytes:
    """Encode the few shapes that metadata uses, each in its widest form."""
    if isinstance(value, int):
        return b"\xd3" + struct.pack(">q", value)
    if isinstance(value, str):
        raw = value.encode()
        return b"\xdb" + struct.pack(">I", len(raw)) + raw
    if isinstance(value, Mapping):
        body = b"".join(msgpack(key) + msgpack(item) for key, item in value.items())
        return b"\xdf" + struct.pack(">I", len(value)) + body
    assert isinstance(value, Sequence)
    return b"\xdd" + struct.pack(">I", len(value)) + b"".join(msgpack(item) for item in value)


def _arguments(types: Sequence[str]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    offset = 0
    for type_ in types:
        size = SIZES[type_]
        offset = -(-offset // size) * size
        rows.append(
            {
                ".offset": offset,
                ".size": size,
                ".value_kind": "global_buffer" if type_ == "ptr" else "by_value",
            }
        )
        offset += size
    return rows


def fake_hsaco(arch: str, kernels: Sequence[FakeKernel], filler: bytes = b"") -> bytes:
    """An ELF64 file for `arch` ("gfx908") whose note describes `kernels`; `filler` makes it larger."""
    metadata = msgpack(
        {
            "amdhsa.target": f"amdgcn-amd-amdhsa--{arch}",
            "amdhsa.version": [1, 2],
            "amdhsa.kernels": [
                {
                    ".name": kernel.symbol,
                    ".symbol": kernel.symbol + ".kd",
                    ".args": _arguments(kernel.types),
                    ".group_segment_fixed_size": kernel.lds_bytes,
                    ".max_flat_workgroup_size": kernel.max_threads,
                    ".wavefront_size": 64,
                }
                for kernel in kernels
            ],
        }
    )
    note = struct.pack("<III", 7, len(metadata), 32) + b"AMDGPU\0\0" + metadata
    note += b"\0" * (-len(note) % 4)
    ident = b"\x7fELF" + bytes([2, 1, 1, 64, 3]) + b"\0" * 7
    header = ident + struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 64, 0, 0x30, 64, 56, 2, 0, 0, 0)
    note_at = 64 + 2 * 56
    segments = struct.pack("<IIQQQQQQ", 4, 4, note_at, 0, 0, len(note), len(note), 4)
    segments += struct.pack("<IIQQQQQQ", 1, 4, note_at + len(note), 0, 0, len(filler), len(filler), 1)
    return header + segments + note + filler
