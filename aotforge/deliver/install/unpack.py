"""Unpacks archives of a release and compares them with the signed index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from aotforge.errors import TrustError
from aotforge.formats.folder_sink import FolderSink
from aotforge.formats.untrusted_tar import TarFacts, UnsafeArchiveError, read_archive
from aotforge.publish.index import IndexedFile


def unpack(
    file: IndexedFile,
    where: str,
    chunks: Iterable[bytes],
    sink: FolderSink,
    *,
    on_bytes: Callable[[int], None] | None = None,
) -> None:
    """Unpacks an archive and compares size and SHA-256 of it and of the tar inside with the index.

    `where` names it in messages. Raises TrustError; the caller then discards what the sink has made.
    """
    if file.tar is None:
        raise TrustError(
            f"the index does not describe the contents of {file.name}", hint="report this to the publisher"
        )
    try:
        facts = read_archive(_bounded(chunks, file.size), sink, bounds=file.tar, on_bytes=on_bytes)
    except UnsafeArchiveError as error:
        raise _refused(where, str(error)) from None
    if (facts.size, facts.sha256) != (file.size, file.sha256):
        raise _refused(where, "it does not match the index")
    if facts.tar != TarFacts(sha256=file.tar.sha256, size=file.tar.size, members=file.tar.members):
        raise _refused(where, "its contents do not match the index")


def _bounded(chunks: Iterable[bytes], limit: int) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise UnsafeArchiveError(f"it is longer than the {limit} bytes in the index")
        yield chunk


def _refused(where: str, why: str) -> TrustError:
    return TrustError(
        f"{where} is refused: {why}",
        cause="it was changed or cut off there or on the way",
        hint="nothing was installed; use another mirror, and report this to the publisher",
    )
