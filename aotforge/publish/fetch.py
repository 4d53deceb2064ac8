"""Downloads of a release's files that resume and are verified by size and SHA-256."""

import fcntl
import hashlib
from io import BufferedRandom
from pathlib import Path

from aotforge.base.files import make_folders, output_errors
from aotforge.errors import TrustError
from aotforge.formats.archive import sha256_file
from aotforge.publish.index import IndexedFile
from aotforge.publish.stores.reading import read_file
from aotforge.publish.stores.store import OnBytes, Reader


def fetch_file(
    reader: Reader, name: str, file: IndexedFile, folder: Path, *, on_bytes: OnBytes = lambda count: None
) -> Path:
    """The path of `name`'s bytes, in `folder` under their SHA-256. A download that was killed is resumed.

    Raises TrustError when the store has other bytes, StoreError, OutputError when the folder cannot be
    written.
    """
    path = folder / file.sha256
    partial = path.with_name(f"{path.name}.part")
    with output_errors(path):
        make_folders(folder)
        with partial.open("a+b") as part:
            fcntl.flock(part, fcntl.LOCK_EX)  # of another command that downloads the same file
            if path.is_file() and sha256_file(path) == file.sha256:
                partial.unlink(missing_ok=True)
                on_bytes(file.size)
                return path
            resumed = part.seek(0, 2)
            complete = _complete(reader, name, file, part, on_bytes)
            if not complete and resumed:  # the earlier run's bytes may be the wrong ones
                part.truncate(0)
                complete = _complete(reader, name, file, part, lambda count: None)
            if not complete:
                partial.unlink()
                raise TrustError(
                    f"{reader.url}/{name} does not match the index "
                    f"({file.size} bytes, SHA-256 {file.sha256[:16]}...)",
                    cause="it was changed or truncated at the source or on the way",
                    hint="nothing was installed; use another mirror, and inform the publisher",
                )
            part.flush()
            partial.rename(path)
    return path


def _complete(reader: Reader, name: str, file: IndexedFile, part: BufferedRandom, on_bytes: OnBytes) -> bool:
    """Downloads what `part` lacks; True when its bytes are the file's."""
    part.seek(0)
    digest = hashlib.file_digest(part, "sha256")
    size = part.seek(0, 2)
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
