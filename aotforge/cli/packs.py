"""Tasks that look into image packs."""

from __future__ import annotations

import sys
from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from aotforge.cli.command import JSON, door, say


def _pack(path: str) -> Path:
    return Path(path).absolute()


@task(positional=["pack"], help={"pack": "a folder below aotriton.images", "json": JSON})
@door
def images_ls(c: Context, pack: str, json: bool = False) -> None:
    """List the images of a pack and the calls that they serve."""
    from aotforge.pack.listing import (  # noqa: PLC0415
        list_images,
        listing_json,
        listing_text,
    )

    images = list_images(_pack(pack))
    say((listing_json(images) if json else listing_text(images)).rstrip("\n"))


@task(
    positional=["pack", "image"],
    help={
        "pack": "a folder below aotriton.images",
        "image": "SHA-256 of the image, or its first digits (see images.ls)",
        "output": "file to write; standard output if not given and not a terminal",
    },
)
@door
def images_cat(c: Context, pack: str, image: str, output: str | None = None) -> None:
    """Write one image (an HSACO code object), decoded and verified without touching the others."""
    from aotforge.base.files import write_atomic  # noqa: PLC0415
    from aotforge.errors import OutputError  # noqa: PLC0415
    from aotforge.pack.listing import cat_image  # noqa: PLC0415

    data = cat_image(_pack(pack), image)
    if output:
        write_atomic(Path(output).absolute(), data)
    elif sys.stdout.isatty():
        raise OutputError("an image is binary and standard output is a terminal", hint="add --output FILE")
    else:
        sys.stdout.buffer.write(data)


TASKS = (("images", "ls", images_ls), ("images", "cat", images_cat))
