"""Stores, keys and checked indexes, opened by address."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from aotforge.base.progress import OnProgress
from aotforge.errors import InstallError
from aotforge.publish.index import Publication
from aotforge.publish.keys import KeySet, load_keys
from aotforge.publish.stores.addresses import open_reader, open_store
from aotforge.publish.stores.store import Reader, Store
from aotforge.publish.trust import TrustedIndex, trusted_index, trusted_root
from aotforge.publish.upload import publish_errors, publish_release


@dataclass(frozen=True, kw_only=True)
class Publisher:
    """A store, and the keys to change its index with."""

    store: Store
    keys: KeySet

    def publish(
        self,
        folder: Path,
        *,
        progress: AbstractContextManager[OnProgress],
        dry_run: bool,
        allow_development: bool,
    ) -> Publication:
        """Publishes the release in `folder`. Raises PublishError, TrustError."""
        with progress as on_progress:
            return publish_release(
                folder,
                self.store,
                self.keys,
                now=datetime.now(UTC),
                dry_run=dry_run,
                allow_development=allow_development,
                on_progress=on_progress,
            )


def open_for_publishing(url: str) -> Store:
    """The store at an address. Raises PublishError for one that cannot be published to."""
    with publish_errors():
        return open_store(url)


def open_publisher(url: str, keys: Path | None, environment: Mapping[str, str]) -> Publisher:
    """The store at an address with its keys: a folder, else those that `environment` names. Raises PublishError, TrustError."""
    return Publisher(store=open_for_publishing(url), keys=load_keys(keys, environment))


def open_index(
    url: str | None, *, root: str | None, checkout: Path, environment: Mapping[str, str], cache: Path
) -> tuple[Reader, TrustedIndex]:
    """The place of releases at an address, else at AOTFORGE_FROM, and its checked index.

    Raises InstallError, TrustError, StoreError.
    """
    address = url or environment.get("AOTFORGE_FROM")
    if not address:
        raise InstallError(
            "the place of releases is not set", hint="--from URL or AOTFORGE_FROM; a folder is also possible"
        )
    reader = open_reader(address)
    return reader, trusted_index(reader, trusted_root(root, checkout, environment), cache / "trust")
