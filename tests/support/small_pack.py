"""A second, independent writer of image packs, made from docs/image-pack-format.md alone, for comparison in
tests.

Values are plain dataclasses that mirror the format's tables; nothing is checked, so that broken packs can be
written too.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import zstandard

from tests.support.fake_hsaco import FakeKernel, fake_hsaco

TYPES = {"ptr": 0, "i32": 1, "i64": 2, "u64": 3, "f32": 4}


@dataclass(frozen=True, kw_only=True)
class Choice:
    image: bytes
    symbol: str
    threads: int = 256
    lds: int = 0
    predicates: Sequence[tuple[int, Sequence[str], int, int]] = ()
    """(kind, value names, low, high)"""
    grid: Sequence[Sequence[tuple[str, int]]] = ((), (), ())


@dataclass(frozen=True, kw_only=True)
class Kernel:
    name: str
    operator: str
    step: int = 0
    keys: Sequence[str] = ()
    ladder: bool = False
    parameters: Sequence[tuple[str, str]] = ()
    """(type, value name)"""
    nulls: int = 0
    functionals: Mapping[tuple[str, tuple[int, ...]], Sequence[Choice]]
    """(arch, key numbers) to choices in order"""


@dataclass(frozen=True, kw_only=True)
class SmallPack:
    archs: Sequence[str]
    operators: Mapping[str, Sequence[tuple[str, str]]]
    """operator name to (value name, type) in order"""
    kernels: Sequence[Kernel]
    dictionary: bytes = b""
    gates: Sequence[tuple[str, str]] = ()
    """(gate, arch)"""


def text(value: str) -> bytes:
    raw = value.encode("ascii")
    return bytes([len(raw)]) + raw


def container(images: Sequence[bytes], dictionary: bytes) -> bytes:
    """The bytes of one .aoti file; `images` in any order, duplicates are stored once."""
    by_digest = {hashlib.sha256(image).digest(): image for image in images}
    parameters = zstandard.ZstdCompressionParameters.from_level(
        9, write_content_size=True, write_checksum=False, write_dict_id=False
    )
    raw = (
        zstandard.ZstdCompressionDict(dictionary, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        if dictionary
        else None
    )
    plain = zstandard.ZstdCompressor(compression_params=parameters)
    packer = zstandard.ZstdCompressor(compression_params=parameters, dict_data=raw) if raw else plain
    stored = plain.compress(dictionary) if dictionary else b""
    frames, index = [], []
    data_at = 128 + 64 * len(by_digest) + len(stored)
    at = data_at
    for digest in sorted(by_digest):
        frame = packer.compress(by_digest[digest])
        index.append(digest + struct.pack("<QII", at, len(frame), len(by_digest[digest])) + bytes(16))
        frames.append(frame)
        at += len(frame)
    rows = b"".join(index)
    header = b"AOTFIMG\n" + struct.pack("<IIQII", 1, 128, at, len(index), 0)
    header += struct.pack("<QQIIQ", 128, 128 + len(rows), len(stored), len(dictionary), data_at)
    header += (hashlib.sha256(dictionary).digest() if dictionary else bytes(32)) + hashlib.sha256(
        rows
    ).digest()
    return header + rows + stored + b"".join(frames)


def seal(body: bytes) -> bytes:
    """A dispatch file with a right header over any body."""
    head = b"AOTFDSP\n" + struct.pack("<IIQQ", 1, 64, 64 + len(body), 0)
    return head + hashlib.sha256(body).digest() + body


def _predicates(choice: Choice, values: Sequence[str]) -> bytes:
    out = bytes([len(choice.predicates)])
    for kind, names, low, high in choice.predicates:
        out += struct.pack(f"<BB{len(names)}H", kind, len(names), *map(values.index, names))
        out += struct.pack("<qq", low, high)
    return out


def _choice(choice: Choice, values: Sequence[str], image_index: int, predicate_list: int) -> bytes:
    out = (
        struct.pack("<I", image_index)
        + text(choice.symbol)
        + struct.pack("<IHH", choice.lds, choice.threads, predicate_list)
    )
    out += bytes(len(axis) for axis in choice.grid)
    return out + b"".join(struct.pack("<HI", values.index(v), d) for axis in choice.grid for v, d in axis)


def files(pack: SmallPack) -> dict[str, bytes]:
    """File name to bytes."""
    operators = sorted(pack.operators)
    archs = sorted(pack.archs)
    kernels = sorted(pack.kernels, key=lambda k: (operators.index(k.operator), k.step))
    images = {
        f"{k.name}.aoti": sorted(
            {c.image for cs in k.functionals.values() for c in cs}, key=lambda i: hashlib.sha256(i).digest()
        )
        for k in kernels
    }
    out = {name: container(list(rows), pack.dictionary) for name, rows in images.items()}
    names = sorted(out)
    body = struct.pack("<H", len(archs)) + b"".join(text(a) for a in archs)
    body += struct.pack("<H", len(names))
    for name in names:
        body += text(name) + hashlib.sha256(out[name][: 128 + 64 * len(images[name])]).digest()
    body += struct.pack("<H", len(operators))
    for operator in operators:
        rows = pack.operators[operator]
        body += (
            text(operator)
            + struct.pack("<H", len(rows))
            + b"".join(text(v) + bytes([TYPES[t]]) for v, t in rows)
        )
    body += struct.pack("<H", len(kernels))
    for k in kernels:
        values = [v for v, _ in pack.operators[k.operator]]
        file = k.name + ".aoti"
        body += text(k.name) + struct.pack("<HBH", operators.index(k.operator), k.step, names.index(file))
        body += bytes([len(k.keys)]) + b"".join(struct.pack("<H", values.index(key)) for key in k.keys)
        body += bytes([k.ladder])
        body += struct.pack("<H", len(k.parameters))
        body += b"".join(struct.pack("<BH", TYPES[t], values.index(v)) for t, v in k.parameters)
        rows_in_order = sorted(k.functionals.items(), key=lambda item: (archs.index(item[0][0]), item[0][1]))
        lists = list(dict.fromkeys(_predicates(c, values) for _, choices in rows_in_order for c in choices))
        body += struct.pack("<BH", k.nulls, len(lists)) + b"".join(lists)
        body += struct.pack("<I", len(k.functionals))
        for (arch, key), choices in rows_in_order:
            body += struct.pack("<H", archs.index(arch)) + b"".join(
                struct.pack("<q", number) for number in key
            )
            body += struct.pack("<H", len(choices))
            body += b"".join(
                _choice(c, values, images[file].index(c.image), lists.index(_predicates(c, values)))
                for c in choices
            )
    body += struct.pack("<H", len(pack.gates))
    for gate, arch in sorted(pack.gates, key=lambda row: (row[0], archs.index(row[1]))):
        body += text(gate) + struct.pack("<H", archs.index(arch))
    return out | {"dispatch.aotd": seal(body)}


def write(pack: SmallPack, directory: Path) -> None:
    """Write the pack's files into `directory`, which is made."""
    directory.mkdir(parents=True)
    for name, content in files(pack).items():
        (directory / name).write_bytes(content)


def write_add(directory: Path) -> None:
    """Write a pack of gfx908 with one kernel, `add`, whose code is zeros."""
    image = fake_hsaco("gfx908", [FakeKernel(symbol="add", types=["ptr", "ptr", "ptr", "i32"])], bytes(20000))
    choice = Choice(image=image, symbol="add", grid=((("n", 1024),), (), ()))
    values = [("x", "ptr"), ("y", "ptr"), ("out", "ptr"), ("n", "i32")]
    kernel = Kernel(
        name="e.add",
        operator="add",
        parameters=[(t, v) for v, t in values],
        functionals={("gfx908", ()): [choice]},
    )
    pack = SmallPack(archs=["gfx908"], operators={"add": values}, kernels=[kernel], dictionary=image[:300])
    write(pack, directory)
