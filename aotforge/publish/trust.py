"""The signed index as clients read it: TUF's client workflow (section 5), by python-tuf.

Verified metadata is remembered in a folder per trusted root: an index older than a remembered one is a
rollback.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from tuf.api import exceptions as tuf
from tuf.api.metadata import Metadata, Targets
from tuf.api.serialization import DeserializationError
from tuf.ngclient import Updater, UpdaterConfig
from tuf.ngclient.fetcher import FetcherInterface

from aotforge.base.files import output_errors, waiting_lock
from aotforge.base.progress import OnProgress, byte_counter
from aotforge.errors import TrustError
from aotforge.publish.index import FOLDER, Index, read_index
from aotforge.publish.keys import ROOT_VARIABLE, read_root
from aotforge.publish.repository import LIMIT, TIMESTAMP
from aotforge.publish.stores.reading import read_small
from aotforge.publish.stores.store import DeniedError, MissingError, OnBytes, Reader, StoreError

COMMITTED_ROOT = Path("releases/root.json")
"""The project's own root of trust in a checkout, once it has published something."""

_CONFIG = UpdaterConfig(targets_max_length=LIMIT, snapshot_max_length=LIMIT, prefix_targets_with_hash=False)
_MIRROR = "nothing was installed; use another mirror, and inform the publisher"
_ORIGINAL = "use the original place, or have the mirror brought up to date"
_EXPIRED = "an old index is served, or the index was not renewed, or this machine's clock ({now}) is ahead"
_RENEW = "check the clock; the publisher signs again with `./dev release.publish --renew `"
_CHANGED = "a part of the index was changed, or signed by other keys than the trusted root names"
_DISTRUSTED: Mapping[type[Exception], tuple[str, str]] = {
    tuf.ExpiredMetadataError: (_EXPIRED, _RENEW),
    tuf.BadVersionNumberError: ("an older index is served than one seen before, or two are mixed", _ORIGINAL),
}
"""Errors of python-tuf with likely cause and next step."""


def trusted_root(root: str | None, checkout: Path, environment: Mapping[str, str]) -> bytes:
    """The trusted root: `root` (a file), else AOTFORGE_ROOT, else the committed one. Raises TrustError."""
    named = root or environment.get(ROOT_VARIABLE)
    path = Path(named) if named else checkout / COMMITTED_ROOT
    try:
        with path.open("rb") as file:
            data = file.read(LIMIT)  # a larger one is not valid
    except OSError as error:
        if named:
            raise TrustError(f"{path}, the root of trust, cannot be read: {error.strerror}") from None
        raise TrustError(
            "there is no root of trust to check the index with",
            cause=f"{COMMITTED_ROOT} is missing: this checkout has published nothing",
            hint="get root.json from the publisher by a way that you trust, then --root FILE or "
            f"{ROOT_VARIABLE}=FILE",
        ) from None
    read_root(data, str(path))
    return data


@dataclass(frozen=True, kw_only=True)
class TrustedIndex:
    """A verified index, and its signed files by object name, for mirrors."""

    index: Index
    metadata: Mapping[str, bytes]


def trusted_index(
    reader: Reader,
    root: bytes,
    memory: Path,
    *,
    on_progress: OnProgress = lambda stage, done, total: None,
) -> TrustedIndex:
    """The index at `reader`, verified from `root` on. `memory`: the user's folder of earlier verified
    metadata.

    Raises TrustError; StoreError when the place cannot be read, or is too slow.
    """
    folder = memory / hashlib.sha256(root).hexdigest()[:32]
    fetcher = _Fetcher(reader, byte_counter(on_progress, "reading the index", 0))
    with output_errors(folder), waiting_lock(folder), _trust_errors(reader, fetcher):
        url = f"{reader.url}/{FOLDER}/"
        Updater(str(folder), url, fetcher=fetcher, config=_CONFIG, bootstrap=root).refresh()
        return _read_verified(folder)


def _read_verified(folder: Path) -> TrustedIndex:
    """The metadata that python-tuf has verified and stored."""
    files = {role: (folder / f"{role}.json").read_bytes() for role in ("timestamp", "snapshot", "targets")}
    versions = {role: json.loads(data)["signed"]["version"] for role, data in files.items()}
    newest = json.loads((folder / "root.json").read_bytes())["signed"]["version"]
    metadata = {
        f"{FOLDER}/{path.name}": path.read_bytes()
        for path in (folder / "root_history").glob("*.root.json")
        if int(path.name.split(".")[0]) <= newest
    }
    metadata |= {f"{FOLDER}/{versions[role]}.{role}.json": files[role] for role in ("targets", "snapshot")}
    metadata[TIMESTAMP] = files["timestamp"]
    targets = cast("Targets", Metadata.from_bytes(files["targets"]).signed)
    return TrustedIndex(index=read_index(targets), metadata=metadata)


class _Fetcher(FetcherInterface):
    """Reads the store's objects for python-tuf; keeps the store's error, which python-tuf wraps."""

    def __init__(self, reader: Reader, on_bytes: OnBytes) -> None:
        self._reader = reader
        self._on_bytes = on_bytes
        self.error: StoreError | None = None

    def _fetch(self, url: str) -> Iterator[bytes]:
        name = url[len(self._reader.url) + 1 :]
        try:
            data = read_small(self._reader, name, limit=LIMIT)
        except StoreError as error:
            # the newest root is found by requesting one too many; buckets that cannot be listed answer 403
            if name.endswith(".root.json") and isinstance(error, MissingError | DeniedError):
                raise tuf.DownloadHTTPError(error.what, 404) from None
            self.error = error
            raise tuf.DownloadError(error.what) from None
        self._on_bytes(len(data))
        return iter([data])


@contextmanager
def _trust_errors(reader: Reader, fetcher: _Fetcher) -> Iterator[None]:
    """python-tuf's errors as TrustError, the store's as StoreError."""
    try:
        yield
    except (tuf.DownloadError, tuf.RepositoryError, DeserializationError, ValueError) as error:
        if isinstance(error, tuf.DownloadError) and not isinstance(error, tuf.DownloadLengthMismatchError):
            raise fetcher.error or StoreError(f"{reader.url}: {error}") from None
        cause, hint = _DISTRUSTED.get(type(error), (_CHANGED, _MIRROR))
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        what = f"the index at {reader.url} cannot be trusted: {error}"
        raise TrustError(what, cause=cause.format(now=now), hint=hint) from None
