"""Assembly texts by the SHA-256 of their image: in folders and in a release's asm archives."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from aotforge.errors import DecodeError, OutputError


class MissingAssemblyError(DecodeError):
    """No place has the text of an image."""


def find_assembly(digest: str, places: Sequence[Path]) -> str:
    """The text `<digest>.s` in one of `places`, each a folder (searched with its sub-folders) or a .tar.gz.

    Raises MissingAssemblyError, OutputError for a place that cannot be read.
    """
    name = f"{digest}.s"
    for place in places:
        found = _in_folder(place, name) if place.is_dir() else _in_archive(place, name)
        if found is not None:
            try:
                return found.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DecodeError(f"{place}: {name} is no text: {error}") from error
    where = ", ".join(str(place) for place in places) or "nowhere: AOTFORGE_ASM is not set"
    raise MissingAssemblyError(
        f"no assembly text for the image {digest} (looked in {where})",
        cause="the image belongs to another release than the archive, or was altered",
        hint="AOTFORGE_ASM=/path/to/aotriton-...-asm-<pack>.tar.gz, or a folder with it unpacked; several are joined by colons",
    )


def _in_folder(folder: Path, name: str) -> bytes | None:
    direct = folder / name
    if direct.is_file():
        return direct.read_bytes()
    return next((path.read_bytes() for path in sorted(folder.rglob(name)) if path.is_file()), None)


def _in_archive(path: Path, name: str) -> bytes | None:
    try:
        with tarfile.open(path, "r|*") as tar:  # a stream: members are read once, up to the wanted one
            for member in tar:
                if member.isfile() and member.name.rsplit("/", 1)[-1] == name:
                    opened = tar.extractfile(member)
                    return opened.read() if opened else None
    except (OSError, tarfile.TarError, EOFError, zlib.error) as error:
        raise OutputError(
            f"{path} cannot be read: {error}",
            cause="no such file, or not a complete archive",
            hint="AOTFORGE_ASM names folders and .tar.gz archives of assembly texts, joined by colons",
        ) from error
    return None
