"""Looking inside a pack: one row per call that an image serves, and one image's bytes."""

from __future__ import annotations

from pathlib import Path

from aotforge.errors import UnknownNameError
from aotforge.pack.model import PackedImage
from aotforge.pack.reader import OpenPack, open_pack


def list_images(path: Path) -> tuple[PackedImage, ...]:
    """Every image with the calls that it serves, in dispatch order. Raises PackError; decodes no image."""
    return listing(open_pack(path))


def listing(opened: OpenPack) -> tuple[PackedImage, ...]:
    """The rows of an open pack."""
    rows = []
    for kernel in opened.dispatch.kernels:
        images = opened.indexes[kernel.container].images
        for functional in kernel.functionals:
            for tried, choice in enumerate(functional.choices):
                entry = images[choice.image]
                rows.append(
                    PackedImage(
                        digest=entry.digest.hex(),
                        container=kernel.container,
                        kernel=kernel.name,
                        operator=kernel.operator,
                        step=kernel.step,
                        arch=functional.arch,
                        key=tuple(zip(kernel.keys, functional.key, strict=True)),
                        tried=tried,
                        predicates=choice.predicates,
                        grid=choice.grid,
                        symbol=choice.symbol,
                        threads=choice.threads,
                        dynamic_lds_bytes=choice.dynamic_lds_bytes,
                        size=entry.size,
                        stored=entry.stored,
                    )
                )
    return tuple(rows)


def cat_image(path: Path, digest: str) -> bytes:
    """The image whose SHA-256 starts with `digest` (hexadecimal), verified; other images are not touched.

    Raises PackError for a damaged pack, UnknownNameError when no image or more than one image matches.
    """
    opened = open_pack(path)
    wanted = digest.lower()
    found = {
        entry.digest.hex(): (container, number)
        for container, index in opened.indexes.items()
        for number, entry in enumerate(index.images)
        if wanted and entry.digest.hex().startswith(wanted)
    }
    if len(found) != 1:
        several = ", ".join(sorted(found)[:3])
        raise UnknownNameError(
            f"{path} has {len(found)} images whose SHA-256 starts with {digest!r}"
            + (f": {several}" if found else ""),
            hint="`./dev images.ls` lists the SHA-256 of every image; an unambiguous beginning will do",
        )
    return opened.image(*next(iter(found.values())))
