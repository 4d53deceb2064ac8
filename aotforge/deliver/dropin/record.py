"""The record of a drop-in, in torch/lib/.aotforge-dropin: what was there before, so that it can be put back."""

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
class Record:
    """`names` are the entries of torch/lib that are links of ours; `release` is what they lead to, "" for the originals."""

    release: str
    names: tuple[str, ...]
    format: int = _FORMAT


def load_record(folder: Path) -> Record | None:
    """The record in a torch/lib, None when nothing was ever dropped in. Raises DropInError for one that is damaged."""
    path = folder / STORE / _RECORD
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return _parse(fields)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DropInError(
            f"{path} cannot be used: {error}",
            cause="it was edited, or written by a newer version of this program",
            hint=f"the original files are in {path.parent / ORIGINALS}; put them back by hand, or reinstall PyTorch",
        ) from error


def _parse(fields: Mapping[str, object]) -> Record:
    names, release = fields["names"], fields["release"]
    if fields["format"] != _FORMAT:
        raise ValueError(f"format {fields['format']}, this program reads {_FORMAT}")
    if not (isinstance(names, list) and isinstance(release, str)):
        raise TypeError("not a record")
    # a name is joined to torch/lib and unlinked there
    if not all(
        isinstance(name, str) and name and "/" not in name and name not in {".", ".."} for name in names
    ):
        raise ValueError("a name that is no file name")
    return Record(release=release, names=tuple(names))


def save_record(folder: Path, record: Record) -> None:
    """Raises OutputError."""
    text = json.dumps(asdict(record), indent=1, sort_keys=True) + "\n"
    write_atomic(folder / STORE / _RECORD, text.encode("utf-8"))
