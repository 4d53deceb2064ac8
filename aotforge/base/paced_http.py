"""HTTP connections with a least average rate; redirects keep the scheme or improve it.

Without a rate a server that sends a byte now and then keeps a client for ever (TUF's slow retrieval attack).
"""

import http.client
import io
import socket
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

Clock = Callable[[], float]
"""Seconds of a monotonic clock; replaced in tests."""

GRACE_SECONDS = 120.0
"""Seconds that a download may take regardless of its size: connections, redirects, pauses before retries."""

LEAST_RATE = 2048
"""Bytes per second that a download must reach on average after the grace: a quarter of a 64 kbit/s line."""

_RECEIVE_SECONDS = 30.0
"""Time limit of a connection attempt and of one receive; a stalled connection is opened again."""

_BUFFER = 64 * 1024

_KEPT_HEADERS = {"Range", "User-agent"}
"""Headers that a redirected request has, too, as urllib writes their names."""


class Pace:
    """The least average rate of one download. `left` raises as soon as it falls short. Subclasses have errors of their own."""

    def __init__(self, place: str, clock: Clock = time.monotonic) -> None:
        self.place = place
        self._clock = clock
        self._start = clock()
        self._bytes = 0

    def count(self, size: int) -> None:
        """Adds received bytes of content."""
        self._bytes += size

    def left(self) -> float:
        """Seconds that the next bytes may take. Raises `too_slow` when there are none left."""
        left = GRACE_SECONDS + self._bytes / LEAST_RATE - (self._clock() - self._start)
        if left <= 0:
            raise self._short()
        return left

    @contextmanager
    def limited(self, connection: socket.socket, seconds: float) -> Iterator[None]:
        """One call of the connection takes at most `seconds`, and what is left. Raises `too_slow` where the latter ended it."""
        left = self.left()
        connection.settimeout(min(seconds, left))
        try:
            yield
        except TimeoutError as error:
            if left <= seconds:
                raise self._short() from error
            raise

    def _short(self) -> Exception:
        elapsed = self._clock() - self._start
        return self.too_slow(f"{self.place} is too slow: {self._bytes} bytes in {elapsed:.0f} s")

    def too_slow(self, what: str) -> Exception:
        """The error of a download that falls short."""
        return TimeoutError(what)

    def other_scheme(self, old: str, scheme: str) -> Exception:
        """The error of a redirect from `old` to a worse or unknown scheme."""
        return ConnectionError(f"{old} redirects to {scheme}, which is not followed")


def paced_opener(
    pace: Pace, *handlers: urllib.request.BaseHandler, context: ssl.SSLContext | None = None
) -> urllib.request.OpenerDirector:
    """Opens http and https addresses, through the environment's proxies unless `handlers` has others. Raises the errors of `pace`."""
    return urllib.request.build_opener(_Http(pace), _Https(pace, context), _Redirects(pace), *handlers)


class _PacedSocket(io.RawIOBase):
    """A connection's receiving side. Headers count too: a server may delay those as well."""

    def __init__(self, connection: socket.socket, raw: io.RawIOBase, pace: Pace) -> None:
        self._connection, self._raw, self._pace = connection, raw, pace

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        with self._pace.limited(self._connection, _RECEIVE_SECONDS):
            return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _PacedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, pace: Pace, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self.fp = io.BufferedReader(_PacedSocket(sock, self.fp.detach(), pace), _BUFFER)


def connect(
    pace: Pace, address: tuple[str, int], limit: float, source_address: tuple[str, int] | None = None
) -> socket.socket:
    """As `socket.create_connection`, with all addresses of a name in the pace: a name can have thousands. Raises OSError, `too_slow`."""
    failure: OSError = ConnectionError(f"{address[0]} has no address")
    for family, kind, protocol, _, place in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        seconds = min(limit, pace.left())
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(seconds)
            if source_address:
                connection.bind(source_address)
            connection.connect(place)
        except OSError as error:
            connection.close()
            failure = error
        else:
            return connection
    raise failure


def _connection(kind: type[http.client.HTTPConnection], pace: Pace, host: str, **options: Any) -> Any:
    given = options.get("timeout")  # an object without a meaning where the caller has no limit
    limit = given if isinstance(given, int | float) else _RECEIVE_SECONDS
    options["timeout"] = min(limit, pace.left())
    made: Any = kind(host, **options)
    made._create_connection = partial(connect, pace)  # a part of http.client, as urllib's own handlers use it
    made.response_class = partial(_PacedResponse, pace=pace)
    return made


class _Http(urllib.request.HTTPHandler):
    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(partial(_connection, http.client.HTTPConnection, self._pace), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, pace: Pace, context: ssl.SSLContext | None) -> None:
        super().__init__()
        self._pace = pace
        self._trusted = context

    def https_open(self, req: urllib.request.Request) -> Any:
        connection = partial(_connection, http.client.HTTPSConnection, self._pace)
        return self.do_open(connection, req, context=self._trusted or ssl.create_default_context())


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to the same scheme and from http to https. The new request has headers without secrets only."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        scheme = urlsplit(newurl).scheme.lower()
        if scheme not in {"https", urlsplit(req.full_url).scheme.lower()}:
            fp.close()
            raise self._pace.other_scheme(req.full_url, scheme)
        fp.close()  # urllib would read the body to its end, which a server need not send
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made:  # the earlier one has the proxy's password: its handler adds it again where the new address has the proxy
            made.headers = {name: value for name, value in made.headers.items() if name in _KEPT_HEADERS}
        return made
