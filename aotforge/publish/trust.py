"""The signed index as everyone else sees it: the client workflow of TUF (specification 1.0, section 5), by python-tuf.

What was seen is remembered in a folder, by trusted root: that is what makes an older index than one that was seen before a rollback.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from tuf.api import exceptions as tuf
from tuf.api.metadata import Metadata, Targets
from tuf.api.serialization import DeserializationError
from tuf.ngclient import Updater, UpdaterConfig
from tuf.ngclient.fetcher import FetcherInterface

from aotforge.base.files import output_errors
from aotforge.errors import TrustError
from aotforge.publish.index import read_index
from aotforge.publish.index_model import Index
from aotforge.publish.keys import ROOT_VARIABLE, read_root
from aotforge.publish.signed_index import FOLDER, LIMIT, SIGNED_AT, TIMESTAMP
from aotforge.publish.stores.store import ErrorKind, Reader, StoreError

COMMITTED_ROOT = Path("releases/root.json")
"""Where this project's own root of trust lies in a checkout, once it has published something."""

_SKEW = timedelta(days=1)


def trusted_root(root: str | None, checkout: Path, environment: Mapping[str, str]) -> bytes:
    """The root to begin with: `root` (a file), else AOTFORGE_ROOT, else the committed one. Raises TrustError."""
    committed = checkout / COMMITTED_ROOT
    named = root or environment.get(ROOT_VARIABLE)
    path = Path(named) if named else committed
    try:
        data = path.read_bytes()
    except OSError as error:
        if named:
            raise TrustError(f"{path}, the root of trust, cannot be read: {error.strerror}") from None
        raise TrustError(
            "there is no root of trust to check the index with",
            cause=f"{COMMITTED_ROOT} is not there: this checkout has published nothing",
            hint=f"get root.json from the publisher by a way that you trust, then --root FILE or {ROOT_VARIABLE}=FILE",
        ) from None
    read_root(data, str(path))
    return data


@dataclass(frozen=True, kw_only=True)
class TrustedIndex:
    """A checked index, and the files that it was read from, by their names in a store: what a mirror copies."""

    index: Index
    metadata: Mapping[str, bytes]


def trusted_index(reader: Reader, root: bytes, memory: Path) -> TrustedIndex:
    """The index at `reader`, checked from `root` on. `memory`: a folder for what was seen, of this user alone.
    Raises TrustError; StoreError when the place cannot be read.
    """
    folder = memory / hashlib.sha256(root).hexdigest()[:32]
    fetcher = _Fetcher(reader)
    with output_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            config = UpdaterConfig(
                targets_max_length=LIMIT, snapshot_max_length=LIMIT, prefix_targets_with_hash=False
            )
            with _trust_errors(reader, fetcher):
                updater = Updater(
                    str(folder), f"{reader.url}/{FOLDER}/", fetcher=fetcher, config=config, bootstrap=root
                )
                updater.refresh()
            _check_clock(folder / "timestamp.json", reader)
            return _trusted(folder)


def _trusted(folder: Path) -> TrustedIndex:
    """What python-tuf has checked and written down."""
    found = {role: (folder / f"{role}.json").read_bytes() for role in ("timestamp", "snapshot", "targets")}
    versions = {role: json.loads(data)["signed"]["version"] for role, data in found.items()}
    newest = json.loads((folder / "root.json").read_bytes())["signed"]["version"]
    metadata = {
        f"{FOLDER}/{path.name}": path.read_bytes()
        for path in (folder / "root_history").glob("*.root.json")
        if int(path.name.split(".")[0]) <= newest
    }
    metadata |= {f"{FOLDER}/{versions[role]}.{role}.json": found[role] for role in ("targets", "snapshot")}
    metadata[TIMESTAMP] = found["timestamp"]
    return TrustedIndex(
        index=read_index(cast("Targets", Metadata.from_bytes(found["targets"]).signed)), metadata=metadata
    )


class _Fetcher(FetcherInterface):
    """Gives python-tuf the store's objects; what went wrong with the store is kept, because python-tuf wraps it."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.fault: StoreError | None = None

    def _fetch(self, url: str) -> Iterator[bytes]:
        name = url[len(self._reader.url) + 1 :]
        try:
            # the first piece now: what is missing must be said before the caller begins to read
            pieces = self._reader.read(name)
            first = next(pieces, b"")
        except StoreError as fault:
            # asking for one root too many is how the newest is found; buckets that may not be listed answer that with 403
            if name.endswith(".root.json") and fault.kind in {ErrorKind.MISSING, ErrorKind.DENIED}:
                raise tuf.DownloadHTTPError(fault.what, 404) from None
            self.fault = fault
            raise tuf.DownloadError(fault.what) from None
        return self._rest(first, pieces)

    def _rest(self, first: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
        yield first
        try:
            yield from pieces
        except StoreError as fault:
            self.fault = fault
            raise tuf.DownloadError(fault.what) from None


@contextmanager
def _trust_errors(reader: Reader, fetcher: _Fetcher) -> Iterator[None]:
    """python-tuf's errors in words for whoever installs."""
    try:
        yield
    except tuf.DownloadLengthMismatchError as error:
        raise _distrust(reader, str(error), "a file of the index is longer than its signer said") from None
    except tuf.DownloadError as error:
        raise fetcher.fault or StoreError(ErrorKind.UNAVAILABLE, f"{reader.url}: {error}") from None
    except tuf.ExpiredMetadataError as error:
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        raise _distrust(
            reader, str(error), f"an old index is served, or nobody has signed it for long, or this machine's clock ({now}) is ahead",
            "check the clock; the publisher signs again with `invoke release.renew`",
        ) from None  # fmt: skip
    except tuf.BadVersionNumberError as error:
        raise _distrust(
            reader, str(error), "an older index is served than one that was seen before, or parts of two are mixed",
            "use the original place, or have the mirror brought up to date",
        ) from None  # fmt: skip
    except tuf.UnsignedMetadataError as error:
        raise _distrust(
            reader, str(error), "it was changed, or signed with keys that the trusted root does not name"
        ) from None
    except (tuf.RepositoryError, DeserializationError, ValueError) as error:
        raise _distrust(
            reader, str(error), "a part of the index was changed, or parts of two are mixed"
        ) from None


def _distrust(reader: Reader, what: str, cause: str, hint: str = "") -> TrustError:
    return TrustError(
        f"the index at {reader.url} cannot be trusted: {what}",
        cause=cause,
        hint=hint or "nothing was installed; use another mirror, and tell the publisher",
    )


def _check_clock(timestamp: Path, reader: Reader) -> None:
    """A clock that is behind would take an expired index for a fresh one. The timestamp's signature was checked before it came here."""
    signed = json.loads(timestamp.read_bytes())["signed"].get(SIGNED_AT)
    try:
        made = datetime.fromisoformat(signed) if signed else None
    except (TypeError, ValueError):
        made = None
    now = datetime.now(UTC)
    if made and made - now > _SKEW:
        raise _distrust(
            reader, f"it was signed on {made:%Y-%m-%d %H:%M UTC}, which has not come yet",
            f"this machine's clock says {now:%Y-%m-%d %H:%M UTC} and is behind", "set the clock, then run the same command again",
        )  # fmt: skip
