"""Opening of stores by address: `s3://`, a folder or `file://`, and for reading `http(s)://`."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.stores.http import HttpReader
from aotforge.publish.stores.store import (
    ADDRESSES,
    ErrorKind,
    Reader,
    Store,
    StoreError,
    redact_url,
    split_url,
)


def open_store(url: str) -> Store:
    """A place to publish to, without contacting it. Raises StoreError for an address that cannot be published to."""
    if url.startswith("s3://"):
        return _s3(url, anonymous=False)
    if url.startswith(("http://", "https://")):
        raise StoreError(
            ErrorKind.REFUSED,
            f"{redact_url(url)} can be read from, not published to",
            hint="publish to s3://BUCKET/PREFIX (AWS_ENDPOINT_URL_S3 names another server than Amazon's) or to a folder",
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
            raise StoreError(ErrorKind.REFUSED, what, hint="file:///absolute/path")
        return Path(unquote(parts.path)).absolute()
    if match := re.match(r"([a-z][a-z0-9+.-]+)://", url, re.IGNORECASE):
        raise StoreError(ErrorKind.REFUSED, f"{match[1]}:// is not a known kind of address", hint=ADDRESSES)
    return Path(url).absolute()


def _s3(url: str, *, anonymous: bool) -> Store:
    from aotforge.publish.stores.s3 import open_s3  # noqa: PLC0415 - boto3 takes a third of a second to import

    parts = split_url(url)
    if not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
        raise StoreError(
            ErrorKind.REFUSED,
            f"{redact_url(url)} is not understood",
            hint="s3://BUCKET/PREFIX; credentials come from the environment, the endpoint from AWS_ENDPOINT_URL_S3",
        )
    return open_s3(parts.netloc, parts.path.strip("/"), anonymous=anonymous)
