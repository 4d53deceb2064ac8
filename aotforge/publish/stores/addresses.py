"""Addresses of stores: `s3://bucket/prefix`, a folder or `file://`, and for reading `http(s)://` as well."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.stores.http import HttpReader
from aotforge.publish.stores.store import ErrorKind, Reader, Store, StoreError


def open_store(url: str) -> Store:
    """A place to publish to. Nothing is written or asked yet. Raises StoreError for an address that cannot be published to."""
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
    """A place to read releases from. Raises StoreError for an address that is not understood."""
    if url.startswith(("http://", "https://")):
        return HttpReader(url)
    if url.startswith("s3://"):
        return _s3(url, anonymous=True)
    return DirectoryStore(_folder(url))


def redact_url(url: str) -> str:
    """The address without user, password and query, which may hold secrets (a presigned URL's signature)."""
    if "://" not in url:
        return url
    parts = _split(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", "")).rstrip("/")


def _split(url: str) -> SplitResult:
    """Raises StoreError, which does not quote the address: it may hold secrets."""
    try:
        return urlsplit(url)
    except ValueError as error:
        raise StoreError(
            ErrorKind.REFUSED,
            f"an address is not understood: {error}",
            hint="s3://, http(s)://, file:// or a folder",
        ) from None


def _folder(url: str) -> Path:
    if url.startswith("file://"):
        parts = _split(url)
        if parts.netloc not in {"", "localhost"}:
            raise StoreError(
                ErrorKind.REFUSED, f"{redact_url(url)} names another machine", hint="file:///absolute/path"
            )
        return Path(unquote(parts.path)).absolute()
    if match := re.match(r"([a-z][a-z0-9+.-]+)://", url, re.IGNORECASE):
        raise StoreError(
            ErrorKind.REFUSED,
            f"{match[1]}:// is no kind of address known here",
            hint="s3://, http(s)://, file:// or a folder",
        )
    return Path(url).absolute()


def _s3(url: str, *, anonymous: bool) -> Store:
    from aotforge.publish.stores.s3 import open_s3  # noqa: PLC0415 - boto3 takes a third of a second to import

    parts = _split(url)
    if not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
        raise StoreError(
            ErrorKind.REFUSED,
            f"{redact_url(url)} is not understood",
            hint="s3://BUCKET/PREFIX; credentials come from the environment, the endpoint from AWS_ENDPOINT_URL_S3",
        )
    return open_s3(parts.netloc, parts.path.strip("/"), anonymous=anonymous)
