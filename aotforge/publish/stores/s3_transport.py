"""Least rate of S3 responses, headers included: botocore limits the time of one receive only."""

import io
import socket
import threading
from collections.abc import Callable
from typing import Any

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)
from botocore.exceptions import ClientError
from urllib3.exceptions import NewConnectionError

from aotforge.base.paced_http import connect
from aotforge.publish.stores.reading import Pace, too_large

_BUFFER = 64 * 1024
_REDIRECTS = {301, 302, 303, 307, 308}
_RECEIVE_SECONDS = 60.0
_CONNECT_SECONDS = 10.0
_ANSWER_LIMIT = 32 * 1024 * 1024
"""Bytes of an answer besides an object's content: headers and trailers, and what botocore keeps in memory: an error, or a page of a
listing, which has at most 1,000 entries."""


class _Content(threading.local):
    """Whether this thread reads content now, and the bytes of content that it has read so far."""

    reading = False
    size = 0


_content = _Content()
MakePace = Callable[[], Pace]


def read_content(stream: Any, size: int) -> bytes:
    """At most `size` bytes of an object, whose length its reader limits, from a response of a paced client."""
    _content.reading = True
    try:
        piece: bytes = stream.read1(size)
    finally:
        _content.reading = False
    _content.size += len(piece)
    return piece


def pace_responses(client: Any, make_pace: MakePace) -> None:
    """Makes a client's responses raise StoreError when one falls short of a new pace, which begins after the request was sent."""
    pools = {
        "http": _pool(AWSHTTPConnectionPool, AWSHTTPConnection, make_pace),
        "https": _pool(AWSHTTPSConnectionPool, AWSHTTPSConnection, make_pace),
    }
    # botocore has no public way to other connections; managers of proxies take the first of the two when they are made
    session = client._endpoint.http_session
    session._pool_classes_by_scheme = pools
    session._manager.pool_classes_by_scheme = pools


def end_redirects(client: Any) -> None:
    """Where an answer redirects, botocore requests the bucket's region, again where that answer redirects, until the stack of
    this process is full. The second one raises ClientError, which botocore takes for an unknown region."""

    def check_region(response: Any, operation: Any, **_: Any) -> None:
        if response is not None and response[0].status_code in _REDIRECTS:
            raise ClientError(response[1], operation.name)

    client.meta.events.register_first("needs-retry.s3.HeadBucket", check_region)


def _pool(kind: Any, connection: Any, make_pace: MakePace) -> Any:
    class Connection(connection):  # type: ignore[misc]
        sock: Any

        def _new_conn(self) -> socket.socket:
            """With all addresses of the server's name in one pace: urllib3's limit is of each."""
            try:
                made = connect(make_pace(), (self._dns_host, self.port), _CONNECT_SECONDS)
                for option in self.socket_options or ():
                    made.setsockopt(*option)
                return made
            except OSError as error:
                raise NewConnectionError(self, f"Failed to establish a new connection: {error}") from error

        def connect(self) -> None:
            super().connect()
            self.sock = _PacedSocket(self.sock, make_pace)

    return type(kind.__name__, (kind,), {"ConnectionCls": Connection})


class _PacedSocket:
    """A connected socket whose files are paced."""

    def __init__(self, connection: socket.socket, make_pace: MakePace) -> None:
        self._connection, self._make_pace = connection, make_pace

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def makefile(self, mode: str, buffering: int | None = None, **named: Any) -> Any:
        """A reader of one response."""
        raw = self._connection.makefile(mode, buffering=0, **named)  # type: ignore[call-overload]
        paced = _PacedFile(self._connection, raw, self._make_pace())
        return paced if buffering == 0 else io.BufferedReader(paced, _BUFFER)


class _PacedFile(io.RawIOBase):
    def __init__(self, connection: socket.socket, raw: Any, pace: Pace) -> None:
        self._connection, self._raw, self._pace = connection, raw, pace
        self._left = _ANSWER_LIMIT
        self._content = _content.size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        """While content is read, only that counts for the rate: a trailer or an extension of a chunk need not end."""
        content, self._content = max(0, _content.size - self._content), _content.size
        self._pace.count(content)
        self._connection.settimeout(min(_RECEIVE_SECONDS, self._pace.left()))
        size: int | None = self._raw.readinto(buffer)
        self._left += content - (size or 0)
        if self._left < 0:
            raise too_large(self._pace.place, _ANSWER_LIMIT)
        if not _content.reading:
            self._pace.count(size or 0)
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()
