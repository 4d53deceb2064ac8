"""Getting a file of a release, going on with what an earlier run got of it, and believing nothing but its digest."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from aotforge.base.files import output_errors
from aotforge.errors import TrustError
from aotforge.formats.archive import sha256_file
from aotforge.publish.index_model import IndexedFile
from aotforge.publish.stores.store import CHUNK, Reader


def fetch_file(
    reader: Reader,
    name: str,
    file: IndexedFile,
    folder: Path,
    *,
    on_bytes: Callable[[int], None] | None = None,
) -> Path:
    """The path of `name`'s bytes, in `folder` under their SHA-256. Raises TrustError when the store has other bytes, StoreError when it
    cannot be read, OutputError when the folder cannot be written.
    """
    path = folder / file.sha256
    partial = folder / f"{file.sha256}.part"
    with output_errors(partial):
        folder.mkdir(parents=True, exist_ok=True)
        with partial.open("a+b") as got:
            fcntl.flock(got, fcntl.LOCK_EX)  # another run that wants the same file waits for this one
            if path.is_file() and sha256_file(path) == file.sha256:
                partial.unlink(missing_ok=True)
                if on_bytes:
                    on_bytes(file.size)
                return path
            before = got.seek(0, 2)
            if not _get(reader, name, file, got, on_bytes):
                if before:  # perhaps it was what the earlier run left that is wrong
                    got.truncate(0)
                if not before or not _get(reader, name, file, got, None):
                    partial.unlink(missing_ok=True)
                    raise TrustError(
                        f"{reader.url}/{name} is not what the index says ({file.size} bytes, SHA-256 {file.sha256[:16]}...)",
                        cause="it was changed or cut off there or on the way",
                        hint="nothing was installed; use another mirror, and tell the publisher",
                    )
            got.flush()
            partial.rename(path)
    return path


def _get(
    reader: Reader, name: str, file: IndexedFile, got: BinaryIO, on_bytes: Callable[[int], None] | None
) -> bool:
    """Whether the bytes that `got` has in the end are the file's."""
    digest = hashlib.sha256()
    got.seek(0)
    size = 0
    while chunk := got.read(CHUNK):
        digest.update(chunk)
        size += len(chunk)
    if on_bytes:
        on_bytes(size)
    if size < file.size:
        for chunk in reader.read(name, start=size):
            size += len(chunk)
            if size > file.size:
                return False
            got.write(chunk)
            digest.update(chunk)
            if on_bytes:
                on_bytes(len(chunk))
    return (size, digest.hexdigest()) == (file.size, file.sha256)
