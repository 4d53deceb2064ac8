"""S3 and what speaks its protocol. Credentials, region and endpoint come from boto3's standard chain alone."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import boto3
import botocore
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from aotforge.publish.stores.s3_errors import faults, status_of
from aotforge.publish.stores.s3_parts import abort_uploads, put_parts
from aotforge.publish.stores.store import (
    CHUNK,
    Content,
    ErrorKind,
    Guarantees,
    OnBytes,
    StoreError,
    content_size,
)

PART = 16 * 1024 * 1024
"""Bytes of a part, more where a file would have over 10,000 of them. S3 wants at least 5 MiB of every part but the last."""

ONE_PUT = 5 * 1024**3
"""The most bytes that one PUT may have."""

_PROBE = "tuf/.probe"
_PROBE_BYTES = b"aotforge asks here what this server honours; nothing reads this object\n"
_CONFLICTS = 5


def open_s3(bucket: str, prefix: str, *, anonymous: bool = False, attempts: int = 6) -> S3Store:
    """`anonymous`: read without credentials when the chain finds none, as public buckets allow. `attempts` counts the first one."""
    with faults(f"s3://{bucket}"):
        session = boto3.session.Session()
        unsigned = anonymous and session.get_credentials() is None
        settings: dict[str, Any] = {"signature_version": botocore.UNSIGNED} if unsigned else {}
        config = Config(
            retries={"mode": "standard", "total_max_attempts": attempts},
            # older servers do not know the checksums that botocore would add; every object is read back and compared instead
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            connect_timeout=10,
            read_timeout=60,
            max_pool_connections=16,
            **settings,
        )
        try:
            client = session.client("s3", config=config, region_name=session.region_name or "us-east-1")
        except ValueError:  # boto3's words for an endpoint that is no address; they quote it
            raise StoreError(
                ErrorKind.REFUSED, f"s3://{bucket}: the endpoint is no address", cause="AWS_ENDPOINT_URL_S3, or the AWS configuration, names it",
                hint="e.g. AWS_ENDPOINT_URL_S3=https://s3.example.org",
            ) from None  # fmt: skip
        if not client.meta.endpoint_url.endswith("amazonaws.com"):
            # another server than Amazon's need not answer to bucket.host
            config = config.merge(Config(s3={"addressing_style": "path"}))
            client = session.client("s3", config=config, region_name=session.region_name or "us-east-1")
    return S3Store(client, bucket, prefix)


class S3Store:
    """Objects below `prefix` of a bucket."""

    def __init__(
        self,
        client: Any,
        bucket: str,
        prefix: str,
        *,
        part: int = PART,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._part = part
        self._sleep = sleep
        self._found = Guarantees(put=True, large=True, swap=True)

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def _at(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + name}

    def size(self, name: str) -> int | None:
        """HEAD."""
        with faults(f"{self.url}/{name}"):
            try:
                return int(self._client.head_object(**self._at(name))["ContentLength"])
            except ClientError as error:
                if status_of(error) == 404:
                    return None
                raise

    def read(self, name: str, *, start: int = 0) -> Iterator[bytes]:
        """GET, going on with Range where a connection broke, as long as the object is the same one."""
        position, tag, failures = start, "", 0
        while True:
            asked = {"Range": f"bytes={position}-"} if position else {}
            asked |= {"IfMatch": tag} if tag else {}
            with faults(f"{self.url}/{name}"):
                answer = self._client.get_object(**self._at(name), **asked)
                tag = answer["ETag"]
                end = position + int(answer["ContentLength"])
                try:
                    for chunk in answer["Body"].iter_chunks(CHUNK):
                        position += len(chunk)
                        failures = 0
                        yield chunk
                    if position < end:
                        raise http.client.IncompleteRead(b"", end - position)
                except (BotoCoreError, OSError, http.client.HTTPException) as error:
                    failures += 1
                    if failures >= _CONFLICTS:
                        raise ConnectionError(f"broken {failures} times") from error
                    self._sleep(0.2 * 2**failures)
                    continue
            return

    def probe(self) -> Guarantees:
        """Tries conditional writes on one constant object below `tuf/`, where no release is."""
        at = self._at(_PROBE)
        with faults(f"{self.url}/{_PROBE}"):
            tag = self._client.put_object(**at, Body=_PROBE_BYTES)["ETag"]
            put = self._refuses(lambda: self._client.put_object(**at, Body=_PROBE_BYTES, IfNoneMatch="*"))
            swap = self._refuses(
                lambda: self._client.put_object(**at, Body=_PROBE_BYTES, IfMatch=f'"{"0" * 32}"')
            ) and not self._refuses(lambda: self._client.put_object(**at, Body=_PROBE_BYTES, IfMatch=tag))
            upload = self._client.create_multipart_upload(**at)["UploadId"]
            part = self._client.upload_part(**at, UploadId=upload, PartNumber=1, Body=_PROBE_BYTES)["ETag"]
            parts = {"Parts": [{"PartNumber": 1, "ETag": part}]}
            large = self._refuses(
                lambda: self._client.complete_multipart_upload(
                    **at, UploadId=upload, MultipartUpload=parts, IfNoneMatch="*"
                )
            )
            if large:  # what was refused is still open; one at a time, others probe as well
                self._client.abort_multipart_upload(**at, UploadId=upload)
        self._found = Guarantees(put=put, large=large, swap=swap)
        return self._found

    @staticmethod
    def _refuses(write: Callable[[], object]) -> bool:
        try:
            write()
        except ClientError as error:
            if status_of(error) in {412, 501} or error.response["Error"].get("Code") == "NotImplemented":
                return status_of(error) == 412
            raise
        return False

    def names(self, prefix: str) -> Mapping[str, int]:
        """Objects whose names begin with `prefix`."""
        found = {}
        with faults(f"{self.url}/{prefix}"):
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix + prefix):
                for entry in page.get("Contents", ()):
                    found[entry["Key"][len(self._prefix) :]] = int(entry["Size"])
        return {name: size for name, size in found.items() if not name.rpartition("/")[2].startswith(".")}

    def put_if_absent(self, name: str, content: Content, *, on_bytes: OnBytes | None = None) -> None:
        """One PUT for what fits into a part, else parts; where the server would overwrite with those, one PUT up to 5 GiB."""
        size = content_size(content)
        if self._found.put and not self._found.large and self._part < size <= ONE_PUT:
            self._put(name, content, on_bytes)
        elif size > self._part:
            if not self._found.large and self.size(name) is not None:
                raise self._taken(name)
            part = max(self._part, -(-size // 10_000))
            self._again(
                lambda: put_parts(self._client, self._at(name), content, part=part, condition=self._found.large, on_bytes=on_bytes),
                name,
            )  # fmt: skip
            if self._found.large:  # nothing can come of any other upload of this object
                abort_uploads(self._client, self._at(name))
        else:
            self._put(name, content, on_bytes)

    def _put(self, name: str, content: Content, on_bytes: OnBytes | None) -> None:
        if not self._found.put and self.size(name) is not None:
            raise self._taken(name)
        condition = {"IfNoneMatch": "*"} if self._found.put else {}

        def send() -> None:
            if isinstance(content, bytes):
                self._client.put_object(**self._at(name), Body=content, **condition)
            else:
                with content.open("rb") as file:
                    self._client.put_object(**self._at(name), Body=file, **condition)

        self._again(send, name)
        if on_bytes:
            on_bytes(content_size(content))

    def _again(self, write: Callable[[], None], name: str) -> None:
        """Tries again when another publisher got in the way: its request for the object is under way (409), it replaced parts of an upload that
        both went on with, or it finished the object and dropped all uploads.
        """
        for attempt in range(1, _CONFLICTS + 1):
            with faults(f"{self.url}/{name}"):
                try:
                    return write()
                except ClientError as error:
                    gone = error.response["Error"].get("Code") == "NoSuchUpload"
                    again = (
                        gone
                        or status_of(error) == 409
                        or error.response["Error"].get("Code") == "InvalidPart"
                    )
                    if not again or attempt == _CONFLICTS:
                        raise
                    if gone and self.size(name) is not None:
                        raise self._taken(name) from None
            self._sleep(0.2 * 2**attempt)
        return None

    def load(self, name: str, *, limit: int) -> tuple[bytes, str] | None:
        """GET; the token is the ETag."""
        with faults(f"{self.url}/{name}"):
            try:
                answer = self._client.get_object(**self._at(name))
            except ClientError as error:
                if error.response["Error"].get("Code") == "NoSuchKey":
                    return None
                raise
            data = answer["Body"].read(limit + 1)
        if len(data) > limit:
            raise StoreError(ErrorKind.REFUSED, f"{self.url}/{name} is larger than {limit} bytes")
        return data, answer["ETag"]

    def compare_and_swap(self, name: str, data: bytes, *, token: str | None) -> None:
        """PUT with If-Match, or If-None-Match for the first one; where that is not honoured, a look before the write."""
        condition = {"IfMatch": token} if token else {"IfNoneMatch": "*"}
        if not (self._found.swap if token else self._found.put):
            now = self.load(name, limit=CHUNK)
            if (now[1] if now else None) != token:
                raise self._taken(name)
            condition = {}
        try:
            self._again(lambda: self._client.put_object(**self._at(name), Body=data, **condition), name)
        except StoreError as fault:
            if fault.kind is not ErrorKind.EXISTS:
                raise
            now = self.load(name, limit=CHUNK)
            if (
                not now or now[0] != data
            ):  # an answer that was lost makes a repeated request find its own bytes
                raise

    def _taken(self, name: str) -> StoreError:
        return StoreError(ErrorKind.EXISTS, f"{self.url}/{name} exists")
