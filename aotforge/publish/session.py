"""Stores (`s3://`, folder, `file://`, for reading `http(s)://`), keys and checked indexes by address."""

import re
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from urllib.parse import unquote

from aotforge.base.progress import OnProgress
from aotforge.errors import InstallError
from aotforge.publish.keys import KeySet, load_keys
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.stores.http import HttpReader
from aotforge.publish.stores.store import (
    ADDRESSES,
    ObjectStore,
    Reader,
    StoreError,
    redact_url,
    split_url,
)
from aotforge.publish.trust import TrustedIndex, trusted_index, trusted_root
from aotforge.release.model import MANIFEST

MEMORY = "trust"
"""Folder of the cache with what was seen of indexes."""


def open_publisher(url: str, keys: Path | None, environment: Mapping[str, str]) -> tuple[ObjectStore, KeySet]:
    """The store at an address, and the keys of a folder, else those that `environment` names.

    Raises PublishError, TrustError.
    """
    return open_for_publishing(url), load_keys(keys, environment)


def open_index(
    url: str | None,
    *,
    root: str | None,
    checkout: Path,
    environment: Mapping[str, str],
    cache: Path,
    on_progress: OnProgress = lambda stage, done, total: None,
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
    if isinstance(reader, DirectoryStore) and reader.size(MANIFEST) is not None:
        raise InstallError(
            f"{reader.url} is the folder of one release, not a place of published releases",
            cause="an installation checks the publisher's signed index, which a build does not have",
            hint=f"./dev dropin --release {quote(reader.url)} --pytorch-lib TORCH/LIB, or "
            "publish it: "
            f"./dev release.publish --folder {quote(reader.url)} --to PLACE",
        )
    anchor = trusted_root(root, checkout, environment)
    return reader, trusted_index(reader, anchor, cache / MEMORY, on_progress=on_progress)


def open_for_publishing(url: str) -> ObjectStore:
    """A place to publish to, without contacting it. Raises PublishError for an address that cannot be
    published to."""
    if url.startswith("s3://"):
        return _s3(url, anonymous=False)
    if url.startswith(("http://", "https://")):
        raise StoreError(
            f"{redact_url(url)} can be read from, not published to",
            hint="publish to a folder or to s3://BUCKET/PREFIX (AWS_ENDPOINT_URL_S3 names another server)",
        )
    return DirectoryStore(_folder(url))


def open_reader(url: str) -> Reader:
    """A place to read releases from. Raises StoreError for an unknown kind of address."""
    if url.startswith(("http://", "https://")):
        return HttpReader(url)
    return _s3(url, anonymous=True) if url.startswith("s3://") else DirectoryStore(_folder(url))


def _folder(url: str) -> Path:
    if url.startswith("file://"):
        parts = split_url(url)
        if parts.netloc not in {"", "localhost"}:
            what = f"{redact_url(url)} names another machine"
            raise StoreError(what, hint="file:///absolute/path")
        return Path(unquote(parts.path)).absolute()
    if match := re.match(r"([a-z][a-z0-9+.-]+)://", url, re.IGNORECASE):
        raise StoreError(f"{match[1]}:// is not a known kind of address", hint=ADDRESSES)
    return Path(url).absolute()


def _s3(url: str, *, anonymous: bool) -> ObjectStore:
    try:
        from aotforge.publish.stores.s3 import open_s3  # noqa: PLC0415 - boto3 takes 0.3 s
    except ModuleNotFoundError as error:  # the wheel does not require it
        raise StoreError(
            f"{redact_url(url)} cannot be opened: the Python package {error.name} is not installed",
            hint="pip install boto3",
        ) from None
    parts = split_url(url)
    if not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
        raise StoreError(
            f"{redact_url(url)} is not understood",
            hint="s3://BUCKET/PREFIX; credentials come from the environment, the endpoint from "
            "AWS_ENDPOINT_URL_S3",
        )
    return open_s3(parts.netloc, parts.path.strip("/"), anonymous=anonymous)
