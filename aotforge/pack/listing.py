"""Listing of a pack as values, text and JSON: one row for each call; extraction of one image."""

from collections.abc import Sequence
from dataclasses import asdict

from aotforge.errors import UnknownNameError
from aotforge.pack.container import read_images
from aotforge.pack.model import PackedImage
from aotforge.pack.reader import OpenPack
from aotforge.plan.conditions import when_text
from aotforge.plan.model import GridTerm

_SHORT = 12
_HEADINGS = ("IMAGE", "KERNEL", "ARCH", "TRY", "THREADS", "SHARED", "BYTES", "STORED", "CALL", "GRID", "WHEN")
_RIGHT = frozenset({"TRY", "THREADS", "SHARED", "BYTES", "STORED"})


def list_images(opened: OpenPack) -> tuple[PackedImage, ...]:
    """The rows of a pack, in dispatch order."""
    rows = []
    for kernel in opened.dispatch.kernels:
        images = opened.indexes[kernel.container].images
        for functional in kernel.functionals:
            for tried, choice in enumerate(functional.choices):
                entry = images[choice.image]
                row = PackedImage(
                    digest=entry.digest.hex(),
                    container=kernel.container,
                    kernel=kernel.name,
                    operator=kernel.operator,
                    step=kernel.step,
                    arch=functional.arch,
                    key=tuple(zip(kernel.keys, functional.key, strict=True)),
                    tried=tried,
                    size=entry.size,
                    stored=entry.stored,
                    **vars(choice),
                )
                rows.append(row)
    return tuple(rows)


def cat_image(opened: OpenPack, digest: str) -> bytes:
    """The image whose SHA-256 starts with `digest` (hexadecimal), verified; other images are not read.

    Raises PackError for a damaged image, UnknownNameError when no image or more than one image matches.
    """
    wanted = digest.lower()
    matching = {
        entry.digest.hex(): (container, entry)
        for container, index in opened.indexes.items()
        for entry in index.images
        if wanted and entry.digest.hex().startswith(wanted)
    }
    if len(matching) != 1:
        several = ", ".join(sorted(matching)[:3])
        raise UnknownNameError(
            f"{opened.name} has {len(matching)} images whose SHA-256 starts with {digest!r}"
            + (f": {several}" if matching else ""),
            hint="`./dev images` lists the SHA-256 of every image; an unambiguous beginning will do",
        )
    container, entry = next(iter(matching.values()))
    return read_images(opened.sources[container], opened.indexes[container], [entry])[entry.digest]


def listing_fields(rows: Sequence[PackedImage]) -> list[dict[str, object]]:
    """Every field of every row as JSON values; `key` becomes an object."""
    return [{**asdict(row), "key": dict(row.key)} for row in rows]


def listing_lines(rows: Sequence[PackedImage]) -> list[str]:
    """A table with one line per call, and a last line with the images' number and sizes."""
    cells = [_HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if heading in _RIGHT else cell.ljust(width)
            for cell, width, heading in zip(line, widths, _HEADINGS, strict=True)
        ).rstrip()
        for line in cells
    ]
    images = {(row.container, row.digest): row for row in rows}.values()
    size, stored = sum(image.size for image in images), sum(image.stored for image in images)
    lines.append(f"{len(images)} images, {size:,} bytes, {stored:,} as stored, {len(rows)} calls")
    lines.append("TRY: the library takes the first image of a call whose conditions (WHEN) hold, from 0 on")
    return lines


def grid_text(grid: Sequence[Sequence[GridTerm]]) -> str:
    """The launch grid, e.g. `ceil(seqlen_q / 128) x num_head_q x batch`."""
    factors = [
        [t.value if t.divisor == 1 else f"ceil({t.value} / {t.divisor})" for t in axis] for axis in grid
    ]
    axes = ["*".join(axis) or "1" for axis in factors]
    while len(axes) > 1 and axes[-1] == "1":
        axes.pop()
    return " x ".join(axes) or "1"


def _cells(row: PackedImage) -> tuple[str, ...]:
    call = ", ".join(f"{name} = {number}" for name, number in row.key)
    numbers = (row.tried, row.threads, row.dynamic_shared_bytes, row.size, row.stored)
    return (
        row.digest[:_SHORT],
        row.kernel,
        row.arch,
        *map(str, numbers),
        call,
        grid_text(row.grid),
        when_text(row.predicates),
    )
