"""The installed tree: made beside its place and moved there in one step, with a record of every file in it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from aotforge.base.files import output_errors, output_lock
from aotforge.errors import InstallError

RECORD = ".aotforge-install.json"


@dataclass(frozen=True, kw_only=True)
class Record:
    """What was installed: chips with their packs, archives with their SHA-256, and files of the tree (path to SHA-256 or `-> target`)."""

    release: str
    chips: Mapping[str, str]
    archives: Mapping[str, str]
    files: Mapping[str, str]


def real_prefix(prefix: Path) -> Path:
    """Where `prefix` is when it is a link: the tree is replaced there, and the link stays. Raises InstallError for links in a circle."""
    try:
        return prefix.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError before Python 3.13
        raise InstallError(
            f"{prefix} cannot be followed: {error}", hint="choose another folder, or correct the link"
        ) from None


def read_record(prefix: Path) -> Record | None:
    """The record of an installation; None when `prefix` does not exist or is empty. Raises InstallError when something else is there."""
    try:
        fields = json.loads((prefix / RECORD).read_bytes())
        return Record(**{name: fields[name] for name in ("release", "chips", "archives", "files")})
    except FileNotFoundError:
        if not prefix.exists() or (prefix.is_dir() and not any(prefix.iterdir())):
            return None
        raise InstallError(
            f"{prefix} holds something that was not installed from here",
            hint="choose a folder that is empty or does not exist yet",
        ) from None
    except NotADirectoryError:
        raise InstallError(f"{prefix} is a file", hint="choose a folder that does not exist yet") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InstallError(
            f"{prefix / RECORD} cannot be used: {error}",
            hint="choose another folder, or remove this one by hand",
        ) from None


def check_foreign(prefix: Path, record: Record) -> None:
    """Raises InstallError when there is a file in `prefix` that the installation did not bring: it would be lost."""
    known = {*record.files, RECORD}
    if foreign := sorted(name for name in _walk(prefix) if name not in known):
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise InstallError(
            f"{prefix / foreign[0]}{more} did not come with {record.release}",
            cause="someone put it there",
            hint="move it away, then run the same command again; nothing was changed",
        )


def changed_files(prefix: Path, record: Record) -> list[str]:
    """Files that are not, or are not any more, what was installed."""
    return [name for name, what in sorted(record.files.items()) if _what(prefix / name) != what]


def write_record(staged: Path, record: Record) -> None:
    """Writes the record into the tree."""
    (staged / RECORD).write_text(
        json.dumps({"format": 1, **asdict(record)}, indent=1) + "\n", encoding="utf-8"
    )


def uninstall(prefix: Path) -> tuple[str, int]:
    """Removes an installation; returns its release and number of files. Raises InstallError when something foreign lies in it."""
    prefix = real_prefix(prefix)
    with output_lock(prefix):
        record = read_record(prefix)
        if record is None:
            raise InstallError(f"nothing is installed in {prefix}", hint="check the folder")
        check_foreign(prefix, record)
        with output_errors(prefix):
            aside = Path(tempfile.mkdtemp(prefix=f".{prefix.name}.staged-", dir=prefix.parent))
            prefix.rename(
                aside / "old"
            )  # gone in one step; what a kill leaves beside it the next installation removes
            shutil.rmtree(aside)
    return record.release, len(record.files)


def _walk(prefix: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(prefix):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in (*files, *links):
            yield (Path(folder) / name).relative_to(prefix).as_posix()


def _what(path: Path) -> str:
    try:
        if path.is_symlink():
            return f"-> {path.readlink()}"
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
