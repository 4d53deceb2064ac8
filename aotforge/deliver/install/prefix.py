"""The installed tree, with a record of every file in it."""

import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from aotforge.base.files import output_errors, output_lock, write_atomic
from aotforge.base.manifest_reader import Manifest
from aotforge.errors import InstallError
from aotforge.formats.archive import sha256_file
from aotforge.formats.untrusted_file import read_regular

RECORD = ".aotforge-install.json"
_RECORD_LIMIT = 1 << 24
_NAME_LIMIT, _PART_LIMIT = 2048, 255


def _below(name: str) -> str:
    """The name of a file below the prefix."""
    parts = name.split("/")
    if "\0" in name or {"", ".", ".."} & {*parts} or max(map(len, parts)) > _PART_LIMIT:
        raise ValueError(f"{name[:80]!r} is not a name of a file below the prefix")
    return name


_Name = Annotated[str, Field(max_length=_NAME_LIMIT), AfterValidator(_below)]


class InstallRecord(Manifest):
    """Archs with their packs, archives with their SHA-256, and files of the tree (path to SHA-256 or `->
    target`)."""

    format: Literal[2] = 2
    release: str
    archs: dict[str, str]
    archives: dict[str, str]
    files: dict[_Name, str]


def real_prefix(prefix: Path) -> Path:
    """The target of a `prefix` that is a link: the tree is replaced there. Raises InstallError for circular
    links."""
    try:
        return prefix.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError before Python 3.13
        raise InstallError(
            f"{prefix} cannot be followed: {error}", hint="choose another folder, or correct the link"
        ) from None


def read_record(prefix: Path) -> InstallRecord | None:
    """The record of an installation; None for an empty or missing `prefix`. Raises InstallError for other
    contents."""
    try:
        return InstallRecord.model_validate_json(read_regular(prefix / RECORD, limit=_RECORD_LIMIT))
    except FileNotFoundError:
        if not prefix.exists() or (prefix.is_dir() and not any(prefix.iterdir())):
            return None
        raise InstallError(
            f"{prefix} contains files that this program did not install",
            hint="choose a folder that is empty or does not exist yet",
        ) from None
    except NotADirectoryError:
        raise InstallError(f"{prefix} is a file", hint="choose a folder that does not exist yet") from None
    except (OSError, ValueError) as error:
        raise InstallError(
            f"{prefix / RECORD} cannot be used: {error}",
            hint="choose another folder, or remove this one by hand",
        ) from None


def check_other_files(prefix: Path, record: InstallRecord) -> None:
    """Raises InstallError when `prefix` has a file that was not installed: it would be lost."""
    if others := sorted(_entries(prefix) - {*record.files, RECORD}):
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise InstallError(
            f"{prefix / others[0]}{more} was not installed by {record.release}",
            cause="it was added later",
            hint="move it away, then run the same command again; nothing was changed",
        )


def changed_files(prefix: Path, record: InstallRecord) -> list[str]:
    """Files that were changed or removed since."""
    return [name for name, content in sorted(record.files.items()) if _content(prefix / name) != content]


def write_record(staged: Path, record: InstallRecord) -> None:
    """Writes the record into the tree."""
    write_atomic(staged / RECORD, f"{record.model_dump_json(indent=1)}\n".encode())


def uninstall(prefix: Path) -> tuple[str, int]:
    """Removes an installation; returns its release and number of files. Raises InstallError when it has
    other files."""
    nothing = InstallError(f"nothing is installed in {prefix}", hint="check the folder")
    prefix = real_prefix(prefix)
    if not prefix.exists():
        raise nothing
    with output_lock(prefix):
        record = read_record(prefix)
        if record is None:
            raise nothing
        check_other_files(prefix, record)
        with output_errors(prefix):
            aside = Path(tempfile.mkdtemp(prefix=f".{prefix.name}.staged-", dir=prefix.parent))
            prefix.rename(aside / "old")  # in one step; the next installation removes what a kill leaves
            shutil.rmtree(aside)
    return record.release, len(record.files)


def _entries(prefix: Path) -> set[str]:
    """Everything below `prefix` but folders; links are not followed."""
    paths = (path for path in prefix.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(prefix).as_posix() for path in paths}


def _content(path: Path) -> str:
    try:
        if path.is_symlink():
            return f"-> {path.readlink()}"
        return sha256_file(path) if path.is_file() else ""
    except OSError:
        return ""
