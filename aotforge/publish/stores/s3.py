"""S3 and compatible servers as a store, configured by boto3's standard chain alone."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import boto3
import botocore
from botocore import exceptions as boto
from botocore.config import Config
from urllib3.exceptions import HTTPError

from aotforge.publish.stores.reading import TransientError, read_all, retry
from aotforge.publish.stores.store import CHUNK, Content, ErrorKind, Sleep, StoreError

_AGAIN = "run the same command again later: it continues where it stopped"
_CREDENTIALS = (
    "credentials come from the environment (AWS_ACCESS_KEY_ID, ...), ~/.aws or the machine's role; check "
    "that they belong to this server (AWS_ENDPOINT_URL_S3) and may read and write this bucket"
)
_DENIED = (ErrorKind.DENIED, "the server refuses these credentials", _CREDENTIALS)
_FULL = (ErrorKind.FULL, "the server has no space left", "make space there, then run the same command again")
_FAILING = (ErrorKind.UNAVAILABLE, "the server failed repeatedly", _AGAIN)
_ANSWERS: Mapping[str | int, tuple[ErrorKind, str, str]] = {
    "NoSuchBucket": (ErrorKind.REFUSED, "the bucket does not exist", "make it, or correct the address"),
    "EntityTooLarge": (ErrorKind.REFUSED, "one PUT has at most 5 GiB", "publish smaller archives"),
    **dict.fromkeys(("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", 507), _FULL),
    **dict.fromkeys(("SlowDown", "RequestTimeout", 429, 500, 502, 503, 504), _FAILING),
    **dict.fromkeys((401, 403), _DENIED),
    404: (ErrorKind.MISSING, "there is no such object", "check the address"),
    409: (ErrorKind.EXISTS, "another publisher writes the same object now", _AGAIN),
    412: (ErrorKind.EXISTS, "something else is stored under this name", ""),
    501: (ErrorKind.REFUSED, "the server has no conditional writes", "publish to another server or a folder"),
}
"""Error codes and statuses: kind, cause, next step. The code is looked up first."""

_OTHER = (ErrorKind.REFUSED, "", "see the server's documentation of this code")
_CONFIGURATION = (
    *(boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError),
    *(boto.ProfileNotFound, boto.InvalidConfigError, boto.ConfigParseError),
)


def open_s3(bucket: str, prefix: str, *, anonymous: bool = False) -> S3Store:
    """`anonymous`: read without credentials when the chain finds none, as public buckets allow."""
    with _s3_errors(f"s3://{bucket}"):
        session = boto3.session.Session()
        unsigned = anonymous and session.get_credentials() is None
        settings: dict[str, Any] = {"signature_version": botocore.UNSIGNED} if unsigned else {}
        config = Config(
            retries={"mode": "standard", "total_max_attempts": 6},
            # older servers reject these checksums; every object is read back and compared instead
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            connect_timeout=10,
            read_timeout=60,
            max_pool_connections=16,
            **settings,
        )
        region = session.region_name or "us-east-1"
        client = session.client("s3", config=config, region_name=region)
        if not client.meta.endpoint_url.endswith("amazonaws.com"):
            # only Amazon is sure to serve bucket.host
            config = config.merge(Config(s3={"addressing_style": "path"}))
            client = session.client("s3", config=config, region_name=region)
    return S3Store(client, bucket, prefix)


class S3Store:
    """Objects below `prefix` of a bucket, each sent in one PUT: at most 5 GiB."""

    def __init__(self, client: Any, bucket: str, prefix: str, *, sleep: Sleep = time.sleep) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._sleep = sleep

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def _at(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + name}

    def size(self, name: str) -> int | None:
        """HEAD."""
        try:
            with _s3_errors(f"{self.url}/{name}"):
                return int(self._client.head_object(**self._at(name))["ContentLength"])
        except StoreError as error:
            if error.kind is ErrorKind.MISSING:
                return None
            raise

    def read(self, name: str, *, start: int = 0) -> Iterator[bytes]:
        """GET; resumes with Range after a broken connection."""
        return retry(lambda at: self._get(name, at)[0], f"{self.url}/{name}", start, self._sleep)

    def _get(self, name: str, start: int) -> tuple[Iterator[bytes], str]:
        with _s3_errors(f"{self.url}/{name}"):
            part = {"Range": f"bytes={start}-"} if start else {}
            response = self._client.get_object(**self._at(name), **part)
            return _chunks(response["Body"]), response["ETag"]

    def names(self, prefix: str) -> Mapping[str, int]:
        """Objects whose names begin with `prefix`."""
        with _s3_errors(f"{self.url}/{prefix}"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + prefix
            )
            entries = [entry for page in pages for entry in page.get("Contents", ())]
            return {entry["Key"][len(self._prefix) :]: int(entry["Size"]) for entry in entries}

    def put_if_absent(self, name: str, content: Content) -> None:
        """One PUT with If-None-Match."""
        with (
            BytesIO(content) if isinstance(content, bytes) else content.open("rb") as body,
            _s3_errors(f"{self.url}/{name}"),
        ):
            self._client.put_object(**self._at(name), Body=body, IfNoneMatch="*")

    def remove(self, name: str) -> None:
        """DELETE, which succeeds for a missing object too."""
        with _s3_errors(f"{self.url}/{name}"):
            self._client.delete_object(**self._at(name))

    def load(self, name: str, *, limit: int) -> tuple[bytes, str] | None:
        """GET; the token is the ETag."""
        place = f"{self.url}/{name}"
        try:
            chunks, tag = self._get(name, 0)
            return read_all(chunks, place, limit=limit), tag
        except TransientError as error:
            raise StoreError(ErrorKind.UNAVAILABLE, f"{place} cannot be read: {error}", hint=_AGAIN) from None
        except StoreError as error:
            if error.kind is ErrorKind.MISSING:
                return None
            raise

    def compare_and_swap(self, name: str, data: bytes, *, token: str | None) -> None:
        """PUT with If-Match, or If-None-Match for the first version."""
        condition = {"IfMatch": token} if token else {"IfNoneMatch": "*"}
        with _s3_errors(f"{self.url}/{name}"):
            self._client.put_object(**self._at(name), Body=data, **condition)


def _chunks(body: Any) -> Iterator[bytes]:
    try:
        yield from body.iter_chunks(CHUNK)
    except (boto.BotoCoreError, HTTPError, OSError) as error:
        raise TransientError(f"the connection broke ({type(error).__name__})") from None


@contextmanager
def _s3_errors(place: str) -> Iterator[None]:
    """Turns what boto3 raises into StoreError: status and code only, never a request or a signed address."""
    try:
        yield
    except boto.ClientError as error:
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        code = str(error.response.get("Error", {}).get("Code") or "")
        kind, cause, hint = _ANSWERS.get(code) or _ANSWERS.get(status) or _OTHER
        named = re.fullmatch(r"[A-Za-z0-9._-]{1,80}", code) and code != str(status)
        what = f"{place}: {error.operation_name} was answered {status}{f' {code}' if named else ''}"
        raise StoreError(kind, what, cause=cause, hint=hint) from None
    except _CONFIGURATION as error:
        what = f"{place}: no credentials ({type(error).__name__}: {error})"
        raise StoreError(ErrorKind.DENIED, what, hint=_CREDENTIALS) from None
    except (boto.ParamValidationError, ValueError):  # whose text quotes the endpoint, with its password
        what = f"{place}: the name of bucket or object or the endpoint is not valid"
        hint = "s3://BUCKET/PREFIX, AWS_ENDPOINT_URL_S3=https://HOST"
        raise StoreError(ErrorKind.REFUSED, what, hint=hint) from None
    except (boto.BotoCoreError, HTTPError, ConnectionError, KeyError) as error:
        raise StoreError(
            ErrorKind.UNAVAILABLE,
            f"{place}: the connection failed ({type(error).__name__})",
            cause="server or network are down, or the server at AWS_ENDPOINT_URL_S3 is not one of S3",
            hint=_AGAIN,
        ) from None
