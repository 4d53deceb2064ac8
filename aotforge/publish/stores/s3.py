"""S3 and compatible servers as a store, configured by boto3's standard chain alone."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import Any

import boto3
import botocore
from botocore import exceptions as boto
from botocore.config import Config
from urllib3.exceptions import HTTPError

from aotforge.publish.stores.reading import AGAIN, TransientError, read_all, retry
from aotforge.publish.stores.store import (
    CHUNK,
    Content,
    DeniedError,
    ExistsError,
    MissingError,
    Sleep,
    StoreError,
)

_CREDENTIALS = (
    "credentials come from the environment (AWS_ACCESS_KEY_ID, ...), ~/.aws or the machine's role; check "
    "that they belong to this server (AWS_ENDPOINT_URL_S3) and may read and write this bucket"
)
_DENIED = (DeniedError, "the server refuses these credentials", _CREDENTIALS)
_FULL = (StoreError, "the server has no space left", "make space there, then run the same command again")
_FAILING = (StoreError, "the server failed repeatedly", AGAIN)
_ANSWERS: Mapping[str | int, tuple[type[StoreError], str, str]] = {
    "NoSuchBucket": (StoreError, "the bucket does not exist", "make it, or correct the address"),
    "EntityTooLarge": (StoreError, "one PUT has at most 5 GiB", "publish smaller archives"),
    **dict.fromkeys(("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", 507), _FULL),
    **dict.fromkeys(("SlowDown", "RequestTimeout", 429, 500, 502, 503, 504), _FAILING),
    **dict.fromkeys((401, 403), _DENIED),
    404: (MissingError, "there is no such object", "check the address"),
    409: (ExistsError, "another publisher writes the same object now", AGAIN),
    412: (ExistsError, "something else is stored under this name", ""),
    501: (StoreError, "the server has no conditional writes", "publish to another server or a folder"),
}
"""Error codes and statuses: error, cause, next step. The code is looked up first."""

_OTHER = (StoreError, "", "see the server's documentation of this code")
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

    def _call(self, operation: str, name: str, **arguments: Any) -> Any:
        with _s3_errors(f"{self.url}/{name}"):
            act = getattr(self._client, operation)
            return act(Bucket=self._bucket, Key=self._prefix + name, **arguments)

    def size(self, name: str) -> int | None:
        """HEAD."""
        with suppress(MissingError):
            return int(self._call("head_object", name)["ContentLength"])
        return None

    def read(self, name: str, *, start: int = 0) -> Iterator[bytes]:
        """GET; resumes with Range after a broken connection."""
        return retry(lambda at: self._get(name, at)[0], start, self._sleep)

    def _get(self, name: str, start: int) -> tuple[Iterator[bytes], str]:
        part = {"Range": f"bytes={start}-"} if start else {}
        response = self._call("get_object", name, **part)
        return _chunks(response["Body"], f"{self.url}/{name}"), response["ETag"]

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
        with BytesIO(content) if isinstance(content, bytes) else content.open("rb") as body:
            self._call("put_object", name, Body=body, IfNoneMatch="*")

    def remove(self, name: str) -> None:
        """DELETE, which succeeds for a missing object too."""
        self._call("delete_object", name)

    def load(self, name: str, *, limit: int) -> tuple[bytes, str] | None:
        """GET; the token is the ETag."""
        with suppress(MissingError):
            chunks, tag = self._get(name, 0)
            return read_all(chunks, f"{self.url}/{name}", limit=limit), tag
        return None

    def compare_and_swap(self, name: str, data: bytes, *, token: str | None) -> None:
        """PUT with If-Match, or If-None-Match for the first version."""
        condition = {"IfMatch": token} if token else {"IfNoneMatch": "*"}
        self._call("put_object", name, Body=data, **condition)


def _chunks(body: Any, place: str) -> Iterator[bytes]:
    try:
        yield from body.iter_chunks(CHUNK)
    except (boto.BotoCoreError, HTTPError, OSError) as error:
        raise TransientError(place, f"the connection broke ({type(error).__name__})") from None


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
        raise kind(what, cause=cause, hint=hint) from None
    except _CONFIGURATION as error:
        what = f"{place}: no credentials ({type(error).__name__}: {error})"
        raise DeniedError(what, hint=_CREDENTIALS) from None
    except (boto.ParamValidationError, ValueError):  # whose text quotes the endpoint, with its password
        what = f"{place}: the name of bucket or object or the endpoint is not valid"
        hint = "s3://BUCKET/PREFIX, AWS_ENDPOINT_URL_S3=https://HOST"
        raise StoreError(what, hint=hint) from None
    except (boto.BotoCoreError, HTTPError, ConnectionError, KeyError) as error:
        raise StoreError(
            f"{place}: the connection failed ({type(error).__name__})",
            cause="server or network are down, or the server at AWS_ENDPOINT_URL_S3 is not one of S3",
            hint=AGAIN,
        ) from None
