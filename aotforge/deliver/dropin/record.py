"""The record of a drop-in in torch/lib/.aotforge-dropin: the names that undoing has to restore."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from aotforge.base.files import write_atomic
from aotforge.errors import DropInError

STORE = ".aotforge-dropin"
ORIGINALS = "originals"
CURRENT = "current"
_RECORD = "record.json"
_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class DropInRecord:
    """`names`: entries of torch/lib that are links of the drop-in; `release`: the release that they select."""

    release: str
    names: tuple[str, ...]
    format: int = _FORMAT


def load_record(folder: Path) -> DropInRecord | None:
    """The record in a torch/lib, None when there was no drop-in. Raises DropInError for a damaged one."""
    path = folder / STORE / _RECORD
    try:
        return _parse(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DropInError(
            f"{path} cannot be used: {error}",
            cause="it was edited, or written by a newer version of this program",
            hint=f"the original files are in {path.parent / ORIGINALS}; restore them by hand, or reinstall PyTorch",
        ) from error


def _parse(fields: Mapping[str, object]) -> DropInRecord:
    names, release = fields["names"], fields["release"]
    if fields["format"] != _FORMAT:
        raise ValueError(f"format {fields['format']}, this program reads {_FORMAT}")
    if not (isinstance(names, list) and isinstance(release, str)):
        raise TypeError("not a record")
    for name in names:  # it is joined to torch/lib and unlinked there
        if not (isinstance(name, str) and name and "/" not in name and name not in {".", ".."}):
            raise ValueError(f"{name!r} is not a file name")
    return DropInRecord(release=release, names=tuple(names))


def save_record(folder: Path, record: DropInRecord) -> None:
    """Raises OutputError."""
    text = json.dumps(asdict(record), indent=1, sort_keys=True) + "\n"
    write_atomic(folder / STORE / _RECORD, text.encode("utf-8"))
