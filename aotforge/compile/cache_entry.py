"""The encoded form of a compiled image, which workers send and the cache holds.

Layout (little-endian): magic `AOTFOBJ\\n`, u32 version, u32 header size, SHA-256 of all that follows; then
the header (canonical JSON), the code object and the assembly text as one zstd frame. The header names the job
key, so that a file under a wrong name is detected.
"""

import hashlib
import json
import struct
from dataclasses import asdict, dataclass
from typing import Any

from aotforge.base.object_cache import DamagedObjectError
from aotforge.plan.model import JobKey, build
from aotforge.targets.backend import CodeObjectStats, KernelArgument

VERSION = 1
KIND = f"images-{VERSION}"
_MAGIC = b"AOTFOBJ\n"
_PREFIX = struct.Struct("<8sII32s")
_STORED_STATS = {
    "registers": "vgpr",
    "accumulation_registers": "agpr",
    "scalar_registers": "sgpr",
    "spilled_registers": "vgpr_spills",
    "spilled_scalar_registers": "sgpr_spills",
    "static_shared_bytes": "static_lds_bytes",
    "dynamic_shared_bytes": "dynamic_lds_bytes",
    "warp_size": "wavefront",
}
_STORED_SIZE = ("binary_size", "hsaco_size")
"""Names of fields in headers of version 1, which is older than the second vendor."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """An entry without its contents. `digest` is the code object's SHA-256, sizes are as stored."""

    key: JobKey
    digest: str
    symbol: str
    stats: CodeObjectStats
    arguments: tuple[KernelArgument, ...]
    binary_size: int
    asm_size: int


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A complete entry; `asm_zstd` is the assembly text, compressed."""

    summary: Summary
    binary: bytes
    asm_zstd: bytes

    def asm(self) -> str:
        """The assembly text."""
        import zstandard  # noqa: PLC0415 - a build that finds every image in the cache reads no assembly

        return zstandard.ZstdDecompressor().decompress(self.asm_zstd).decode("utf-8")


def encode(entry: Entry) -> bytes:
    """The entry as bytes; equal entries give equal bytes."""
    fields = asdict(entry.summary)
    fields["stats"] = {_STORED_STATS.get(name, name): value for name, value in fields["stats"].items()}
    fields[_STORED_SIZE[1]] = fields.pop(_STORED_SIZE[0])
    header = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii")
    body = b"".join((header, entry.binary, entry.asm_zstd))
    return _PREFIX.pack(_MAGIC, VERSION, len(header), hashlib.sha256(body).digest()) + body


def decode(data: bytes, key: JobKey) -> Entry:
    """The entry, verified. Raises DamagedObjectError for anything but the intact entry of `key`."""
    if len(data) < _PREFIX.size:
        raise DamagedObjectError(f"truncated to {len(data)} bytes")
    magic, version, header_size, digest = _PREFIX.unpack_from(data)
    if magic != _MAGIC or version != VERSION:
        raise DamagedObjectError("not a cache entry of this version")
    body = memoryview(data)[_PREFIX.size :]
    if hashlib.sha256(body).digest() != digest:
        raise DamagedObjectError("contents do not match their SHA-256")
    try:
        summary = _summary(json.loads(bytes(body[:header_size])))
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedObjectError(f"header: {error}") from error
    binary = bytes(body[header_size : header_size + summary.binary_size])
    asm = bytes(body[header_size + summary.binary_size :])
    if summary.key != key:
        raise DamagedObjectError(f"is the entry of {summary.key}")
    if len(asm) != summary.asm_size or hashlib.sha256(binary).hexdigest() != summary.digest:
        raise DamagedObjectError("image does not match its header")
    return Entry(summary=summary, binary=binary, asm_zstd=asm)


def _summary(fields: dict[str, Any]) -> Summary:
    """Raises ValueError, KeyError, TypeError for other JSON than `encode` writes."""
    stats = {name: fields["stats"][_STORED_STATS.get(name, name)] for name in CodeObjectStats.__annotations__}
    return build(Summary, {**fields, "stats": stats, _STORED_SIZE[0]: fields[_STORED_SIZE[1]]})
