"""An S3 server in memory, below boto3's own client: for answers that no server of ours gives on demand."""

from __future__ import annotations

import hashlib
import io
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from botocore.awsrequest import AWSResponse

from aotforge.publish.stores.s3 import S3Store
from tests.support.s3 import Server

Answer = tuple[int, dict[str, str], bytes]
Fault = Callable[[Callable[[], Answer]], Answer]
"""Gets the usual answer's function, which has the effect on the store, and answers instead."""


class S3Stub:
    """`faults[operation]` are used up one by one; `ignored` operations do not honour conditions."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.faults: dict[str, list[Fault]] = {}
        self.ignored: set[str] = set()
        self.calls: Counter[str] = Counter()
        self.headers: list[tuple[str, dict[str, str]]] = []
        self.missing_status = 404
        self._lock = threading.Lock()

    def store(self, *, attempts: int = 2) -> S3Store:
        """A store of the bucket `b`."""
        client = Server(url="http://127.0.0.1:9").client(attempts=attempts)
        client.meta.events.register("before-send.s3", self._send)
        return S3Store(client, "b", "", sleep=lambda seconds: None)

    def _send(self, request: Any, event_name: str, **_: Any) -> AWSResponse:
        operation = event_name.rpartition(".")[2]
        body = request.body or b""
        data = body if isinstance(body, bytes) else body.read()
        with self._lock:
            self.calls[operation] += 1
            headers = {
                name.lower(): value.decode() if isinstance(value, bytes) else str(value)
                for name, value in request.headers.items()
            }
            self.headers.append((operation, headers))
            parts = urlsplit(request.url)
            key, query = unquote(parts.path).removeprefix("/b/"), parse_qs(parts.query)

            def usual() -> Answer:
                made: Answer = getattr(self, f"_{operation}")(key, query, headers, data)
                return made

            faults = self.faults.get(operation)
            status, more, content = faults.pop(0)(usual) if faults else usual()
        headers = {"content-length": str(len(content)), **more}  # an empty one is left out
        return AWSResponse(
            request.url, status, {name: text for name, text in headers.items() if text}, _Body(content)
        )

    def _refused(self, operation: str, key: str, headers: dict[str, str]) -> bool:
        there = tag(self.objects[key]) if key in self.objects else None
        unlike = headers.get("if-match", there) != there
        exists = "if-none-match" in headers and there is not None
        return (unlike or exists) and operation not in self.ignored

    def _PutObject(self, key: str, query: Any, headers: dict[str, str], data: bytes) -> Answer:
        if self._refused("PutObject", key, headers):
            return failure(412, "PreconditionFailed")
        self.objects[key] = data
        return 200, {"etag": tag(data)}, b""

    def _GetObject(self, key: str, query: Any, headers: dict[str, str], data: bytes) -> Answer:
        if key not in self.objects:
            return failure(self.missing_status, "NoSuchKey" if self.missing_status == 404 else "AccessDenied")
        if self._refused("GetObject", key, headers):
            return failure(412, "PreconditionFailed")
        start = int(headers.get("range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        return 206 if start else 200, {"etag": tag(self.objects[key])}, self.objects[key][start:]

    def _HeadObject(self, key: str, query: Any, headers: dict[str, str], data: bytes) -> Answer:
        if key not in self.objects:
            return self.missing_status, {}, b""
        return 200, {"content-length": str(len(self.objects[key])), "etag": tag(self.objects[key])}, b""

    def _ListObjectsV2(self, key: str, query: Any, headers: dict[str, str], data: bytes) -> Answer:
        prefix = query.get("prefix", [""])[0]
        rows = "".join(
            f"<Contents><Key>{name}</Key><Size>{len(content)}</Size></Contents>"
            for name, content in sorted(self.objects.items())
            if name.startswith(prefix)
        )
        return 200, {}, f"<ListBucketResult>{rows}</ListBucketResult>".encode()


def tag(data: bytes) -> str:
    """An ETag."""
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def failure(status: int, code: str) -> Answer:
    """An error of S3."""
    return status, {"content-type": "application/xml"}, f"<Error><Code>{code}</Code></Error>".encode()


class _Body(io.BytesIO):
    """A body, as urllib3 has it."""

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        yield self.read()
