"""Downloads of a release's files that resume and are verified by size and SHA-256."""

import fcntl
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import BinaryIO

from aotforge.base.files import make_folders, open_regular, output_errors
from aotforge.errors import TrustError
from aotforge.publish.index import IndexedFile
from aotforge.publish.stores.reading import read_file
from aotforge.publish.stores.store import CHUNK, OnBytes, Reader


def fetch_file(
    reader: Reader, name: str, file: IndexedFile, folder: Path, *, on_bytes: OnBytes = lambda count: None
) -> Path:
    """The path of `name`'s bytes, in `folder` under their SHA-256.

    Raises TrustError when the store has other bytes, StoreError, OutputError when the folder cannot be written.
    """
    path = folder / file.sha256
    with output_errors(path):
        make_folders(folder)
        with _own_partial(path) as (partial, part):
            if _is_downloaded(path, file.sha256):
                partial.unlink(missing_ok=True)
                on_bytes(file.size)
                return path
            resumed = part.seek(0, 2)
            complete = _complete(reader, name, file, part, on_bytes)
            if not complete and resumed:  # the earlier run's bytes may be the wrong ones
                part.truncate(0)
                complete = _complete(reader, name, file, part, lambda count: None)
            if not complete:
                partial.unlink(missing_ok=True)
                raise TrustError(
                    f"{reader.url}/{name} does not match the index ({file.size} bytes, SHA-256 {file.sha256[:16]}...)",
                    cause="it was changed or truncated at the source or on the way",
                    hint="nothing was installed; use another mirror, and inform the publisher",
                )
            part.flush()
            partial.rename(path)
    return path


def _is_downloaded(path: Path, sha256: str) -> bool:
    """Whether there is a regular file of this content."""
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False  # the download that replaces it reports what is wrong with the folder


@contextmanager
def _own_partial(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """The first partial file of `path` that no other process downloads to: waiting for one that has a slow server would
    delay this one, so both download. A later download resumes what a killed one has left."""
    for number in count():
        partial = path.with_name(f"{path.name}.part{number or ''}")
        with partial.open("a+b") as part, suppress(BlockingIOError):
            fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield partial, part
            return


def _complete(
    reader: Reader, name: str, file: IndexedFile, part: BinaryIO, on_bytes: Callable[[int], None]
) -> bool:
    """Downloads what `part` lacks; True when its bytes are the file's."""
    digest = hashlib.sha256()
    part.seek(0)
    size = 0
    while chunk := part.read(CHUNK):
        digest.update(chunk)
        size += len(chunk)
    on_bytes(size)
    if size < file.size:
        for chunk in read_file(reader, name, start=size):
            size += len(chunk)
            if size > file.size:
                return False
            part.write(chunk)
            digest.update(chunk)
            on_bytes(len(chunk))
    return (size, digest.hexdigest()) == (file.size, file.sha256)
