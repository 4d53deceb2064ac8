"""Least rates of S3 requests and responses: botocore limits the time of one send and one receive only."""

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)
from botocore.exceptions import ClientError
from urllib3.exceptions import NewConnectionError

from aotforge.base.paced_http import Clock, connect
from aotforge.publish.stores.reading import Pace, too_large

_BUFFER = 64 * 1024
_REDIRECTS = {301, 302, 303, 307, 308}
_RECEIVE_SECONDS = 60.0
_CONNECT_SECONDS = 10.0
_ANSWER_LIMIT = 32 * 1024 * 1024
"""Bytes of an answer besides an object's content: headers and trailers, and what botocore keeps in memory: an error, or a page of a
listing, which has at most 1,000 entries."""


class _Content(threading.local):
    """The bytes of content that this thread has read so far."""

    size = 0


_content = _Content()


class _Pace(Pace):
    """Without the time between the last measurement and `begin`: pauses, and work of this process."""

    def __init__(self, place: str, clock: Clock) -> None:
        self._real, self._begun = clock, clock()
        self._past = self._seen = 0.0
        super().__init__(place, self.measure)

    def measure(self) -> float:
        """Seconds so far."""
        self._seen = self._past + self._real() - self._begun
        return self._seen

    def begin(self) -> None:
        """Continues with the next connection, request or answer."""
        self._past, self._begun = self._seen, self._real()


class _Call(threading.local):
    """The paces of the API call that this thread makes, with all its attempts. Of answers only content counts for the rate, so headers,
    errors and listings have the time of the grace together."""

    def __init__(self, place: str, clock: Clock) -> None:
        self._place, self._clock = place, clock
        self.start()

    def start(self) -> None:
        """Begins the next call."""
        self.receiving, self.sending = (_Pace(self._place, self._clock) for _ in range(2))


def read_content(stream: Any, size: int) -> bytes:
    """At most `size` bytes of an object, whose length its reader limits, from a response of a paced client."""
    piece: bytes = stream.read1(size)
    _content.size += len(piece)
    return piece


def pace_client(client: Any, place: str, clock: Clock) -> None:
    """Makes a client's calls raise StoreError when the server, or a proxy, takes or sends less than the least rate."""
    call = _Call(place, clock)
    pools = {
        "http": _pool(AWSHTTPConnectionPool, AWSHTTPConnection, call),
        "https": _pool(AWSHTTPSConnectionPool, AWSHTTPSConnection, call),
    }
    # botocore has no public way to other connections; managers of proxies take the first of the two when they are made
    session = client._endpoint.http_session
    session._pool_classes_by_scheme = pools
    session._manager.pool_classes_by_scheme = pools

    def start(model: Any, **_: Any) -> None:
        if model.name != "HeadBucket":  # botocore's own, between the attempts of another call
            call.start()

    client.meta.events.register_first("before-call.s3", start)


def end_redirects(client: Any) -> None:
    """Where an answer redirects, botocore requests the bucket's region, again where that answer redirects, until the stack of
    this process is full. The second one raises ClientError, which botocore takes for an unknown region."""

    def check_region(response: Any, operation: Any, **_: Any) -> None:
        if response is not None and response[0].status_code in _REDIRECTS:
            raise ClientError(response[1], operation.name)

    client.meta.events.register_first("needs-retry.s3.HeadBucket", check_region)


def _pool(kind: Any, connection: Any, call: _Call) -> Any:
    class Connection(connection):  # type: ignore[misc]
        sock: Any

        def _new_conn(self) -> socket.socket:
            """With all addresses of the server's name in one pace: urllib3's limit is of each."""
            pace = call.receiving
            pace.begin()
            try:
                made = connect(pace, (self._dns_host, self.port), _CONNECT_SECONDS)
                for option in self.socket_options or ():
                    made.setsockopt(*option)
            except OSError as error:
                raise NewConnectionError(self, f"Failed to establish a new connection: {error}") from error
            self._attempt.enter_context(_ended_after(made, pace.left()))
            return made

        def connect(self) -> None:
            try:
                with ExitStack() as self._attempt:
                    super().connect()
            finally:
                call.receiving.left()
            self.sock = _PacedSocket(self.sock, call)

    return type(kind.__name__, (kind,), {"ConnectionCls": Connection})


@contextmanager
def _ended_after(connection: socket.socket, seconds: float) -> Iterator[None]:
    """Shuts the connection down when the block takes longer: it reads a proxy's answer and the handshake of TLS without a pace."""
    same = connection.dup()  # of the same connection, also when TLS has detached the first

    def end() -> None:
        with suppress(OSError):
            same.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        same.close()


class _PacedSocket:
    """A connected socket that sends in a pace, and whose files are paced."""

    def __init__(self, connection: socket.socket, call: _Call) -> None:
        self._connection, self._call = connection, call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def sendall(self, data: Any) -> None:
        """Sends a piece of a request."""
        pace = self._call.sending
        pace.begin()
        try:
            with pace.limited(self._connection, _RECEIVE_SECONDS):
                self._connection.sendall(data)
        finally:
            pace.measure()
        pace.count(len(data))

    def makefile(self, mode: str, buffering: int | None = None, **named: Any) -> Any:
        """A reader of one response."""
        raw = self._connection.makefile(mode, buffering=0, **named)  # type: ignore[call-overload]
        paced = _PacedFile(self._connection, raw, self._call.receiving)
        return paced if buffering == 0 else io.BufferedReader(paced, _BUFFER)


class _PacedFile(io.RawIOBase):
    def __init__(self, connection: socket.socket, raw: Any, pace: _Pace) -> None:
        self._connection, self._raw, self._pace = connection, raw, pace
        self._left = _ANSWER_LIMIT
        self._content = _content.size
        pace.begin()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Only content counts for the rate: headers, errors, trailers and extensions of a chunk need not end."""
        content, self._content = max(0, _content.size - self._content), _content.size
        self._pace.count(content)
        try:
            with self._pace.limited(self._connection, _RECEIVE_SECONDS):
                size: int | None = self._raw.readinto(buffer)
        finally:
            self._pace.measure()
        self._left += content - (size or 0)
        if self._left < 0:
            raise too_large(self._pace.place, _ANSWER_LIMIT)
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()
