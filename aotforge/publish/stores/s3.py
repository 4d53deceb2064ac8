"""S3 and compatible servers as a store, configured by boto3's standard chain alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Any

import boto3
import botocore
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from aotforge.publish.stores.reading import collect
from aotforge.publish.stores.s3_errors import code_of, s3_errors, status_of
from aotforge.publish.stores.store import (
    CHUNK,
    Content,
    ErrorKind,
    Guarantees,
    OnBytes,
    Sleep,
    StoreError,
    content_size,
)

_PROBE = "tuf/.probe"
_PROBE_BYTES = b"aotforge tests here which conditions this server honours; nothing reads this object\n"
_ATTEMPTS = 5


def open_s3(bucket: str, prefix: str, *, anonymous: bool = False, attempts: int = 6) -> S3Store:
    """`anonymous`: read without credentials when the chain finds none, as public buckets allow. `attempts` counts the first one."""
    with s3_errors(f"s3://{bucket}"):
        session = boto3.session.Session()
        unsigned = anonymous and session.get_credentials() is None
        settings: dict[str, Any] = {"signature_version": botocore.UNSIGNED} if unsigned else {}
        config = Config(
            retries={"mode": "standard", "total_max_attempts": attempts},
            # older servers reject the checksums that botocore would add; every object is read back and compared instead
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            connect_timeout=10,
            read_timeout=60,
            max_pool_connections=16,
            **settings,
        )
        region = session.region_name or "us-east-1"
        try:
            client = session.client("s3", config=config, region_name=region)
        except ValueError:  # boto3's text quotes the endpoint
            raise StoreError(
                ErrorKind.REFUSED,
                f"s3://{bucket}: the endpoint is not a valid address",
                cause="AWS_ENDPOINT_URL_S3, or the AWS configuration, names it",
                hint="e.g. AWS_ENDPOINT_URL_S3=https://s3.example.org",
            ) from None
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
        self._honoured = Guarantees(put=True, swap=True)

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def _at(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + name}

    def size(self, name: str) -> int | None:
        """HEAD."""
        with s3_errors(f"{self.url}/{name}"):
            try:
                return int(self._client.head_object(**self._at(name))["ContentLength"])
            except ClientError as error:
                if status_of(error) == 404:
                    return None
                raise

    def read(self, name: str, *, start: int = 0) -> Iterator[bytes]:
        """GET; resumes with Range after a broken connection, as long as the object is the same one."""
        position, tag, failures = start, "", 0
        while True:
            conditions = {"Range": f"bytes={position}-"} if position else {}
            conditions |= {"IfMatch": tag} if tag else {}
            with s3_errors(f"{self.url}/{name}"):
                response = self._client.get_object(**self._at(name), **conditions)
                tag = response["ETag"]
                try:
                    for chunk in response["Body"].iter_chunks(CHUNK):
                        position += len(chunk)
                        failures = 0
                        yield chunk
                    return
                except (BotoCoreError, HTTPError) as error:
                    failures += 1
                    if failures >= _ATTEMPTS:
                        raise ConnectionError(f"broken {failures} times") from error
                    self._sleep(0.2 * 2**failures)

    def probe(self) -> Guarantees:
        """Tests conditional writes on one constant object below `tuf/`, outside of every release."""
        at = self._at(_PROBE)

        def put(**condition: str) -> Any:
            return self._client.put_object(**at, Body=_PROBE_BYTES, **condition)

        with s3_errors(f"{self.url}/{_PROBE}"):
            tag = put()["ETag"]
            if_absent = self._refuses(lambda: put(IfNoneMatch="*"))
            refuses_others = self._refuses(lambda: put(IfMatch=f'"{"0" * 32}"'))
            swap = refuses_others and not self._refuses(lambda: put(IfMatch=tag))
        self._honoured = Guarantees(put=if_absent, swap=swap)
        return self._honoured

    @staticmethod
    def _refuses(write: Callable[[], object]) -> bool:
        try:
            write()
        except ClientError as error:
            if status_of(error) in {412, 501} or code_of(error) == "NotImplemented":
                return status_of(error) == 412
            raise
        return False

    def names(self, prefix: str) -> Mapping[str, int]:
        """Objects whose names begin with `prefix`."""
        with s3_errors(f"{self.url}/{prefix}"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + prefix
            )
            entries = [entry for page in pages for entry in page.get("Contents", ())]
            found = {entry["Key"][len(self._prefix) :]: int(entry["Size"]) for entry in entries}
        return {name: size for name, size in found.items() if not name.rpartition("/")[2].startswith(".")}

    def put_if_absent(self, name: str, content: Content, *, on_bytes: OnBytes | None = None) -> None:
        """One PUT with If-None-Match; where the server ignores that, the name is looked up first."""
        if not self._honoured.put and self.size(name) is not None:
            raise self._exists(name)
        condition = {"IfNoneMatch": "*"} if self._honoured.put else {}

        def send() -> None:
            with BytesIO(content) if isinstance(content, bytes) else content.open("rb") as body:
                self._client.put_object(**self._at(name), Body=body, **condition)

        self._retry_conflicts(send, name)
        if on_bytes:
            on_bytes(content_size(content))

    def _retry_conflicts(self, write: Callable[[], None], name: str) -> None:
        """Retries while another publisher's request for the object is pending (409)."""
        for attempt in range(1, _ATTEMPTS + 1):
            with s3_errors(f"{self.url}/{name}"):
                try:
                    return write()
                except ClientError as error:
                    if status_of(error) != 409 or attempt == _ATTEMPTS:
                        raise
            self._sleep(0.2 * 2**attempt)
        return None

    def remove(self, name: str) -> None:
        """DELETE, which succeeds for a missing object too."""
        with s3_errors(f"{self.url}/{name}"):
            self._client.delete_object(**self._at(name))

    def load(self, name: str, *, limit: int) -> tuple[bytes, str] | None:
        """GET; the token is the ETag."""
        with s3_errors(f"{self.url}/{name}"):
            try:
                response = self._client.get_object(**self._at(name))
            except ClientError as error:
                if code_of(error) == "NoSuchKey":
                    return None
                raise
            chunks = response["Body"].iter_chunks(CHUNK)
            return collect(chunks, f"{self.url}/{name}", limit=limit), response["ETag"]

    def compare_and_swap(self, name: str, data: bytes, *, token: str | None) -> None:
        """PUT with If-Match, or If-None-Match for the first version; without support for these, load and compare first."""
        condition = {"IfMatch": token} if token else {"IfNoneMatch": "*"}
        if not (self._honoured.swap if token else self._honoured.put):
            now = self.load(name, limit=CHUNK)
            if (now[1] if now else None) != token:
                raise self._exists(name)
            condition = {}
        try:
            self._retry_conflicts(
                lambda: self._client.put_object(**self._at(name), Body=data, **condition), name
            )
        except StoreError as error:
            if error.kind is not ErrorKind.EXISTS:
                raise
            now = self.load(name, limit=CHUNK)
            # when the response to the first request is lost, the retry finds its own bytes
            if not now or now[0] != data:
                raise

    def _exists(self, name: str) -> StoreError:
        return StoreError(ErrorKind.EXISTS, f"{self.url}/{name} exists")
