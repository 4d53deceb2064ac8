"""Connections of the HTTP reader: receives have a time limit, redirects keep the scheme or improve it."""

import http.client
import io
import socket
import ssl
import urllib.request
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from aotforge.publish.stores.reading import Pace
from aotforge.publish.stores.store import ErrorKind, StoreError, redact_url

_RECEIVE_SECONDS = 30.0
"""Time limit of a connection attempt and of one receive; a stalled connection is opened again."""

_BUFFER = 64 * 1024


def paced_opener(pace: Pace) -> urllib.request.OpenerDirector:
    """Opens http and https addresses, through the environment's proxies. Raises StoreError when `pace` has no time left."""
    return urllib.request.build_opener(_Http(pace), _Https(pace), _Redirects)


class _PacedSocket(io.RawIOBase):
    """A connection's receiving side. Headers count too: a server may delay those as well."""

    def __init__(self, connection: socket.socket, raw: io.RawIOBase, pace: Pace) -> None:
        self._connection, self._raw, self._pace = connection, raw, pace

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._connection.settimeout(min(_RECEIVE_SECONDS, self._pace.left()))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _PacedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, pace: Pace, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self.fp = io.BufferedReader(_PacedSocket(sock, self.fp.detach(), pace), _BUFFER)


def _connection(kind: type[http.client.HTTPConnection], pace: Pace, host: str, **options: Any) -> Any:
    options["timeout"] = min(_RECEIVE_SECONDS, pace.left())
    made = kind(host, **options)
    made.response_class = partial(_PacedResponse, pace=pace)  # type: ignore[assignment]
    return made


class _Http(urllib.request.HTTPHandler):
    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(partial(_connection, http.client.HTTPConnection, self._pace), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    def https_open(self, req: urllib.request.Request) -> Any:
        connection = partial(_connection, http.client.HTTPSConnection, self._pace)
        return self.do_open(connection, req, context=ssl.create_default_context())


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to the same scheme and from http to https."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        scheme = urlsplit(newurl).scheme.lower()
        if scheme not in {"https", urlsplit(req.full_url).scheme.lower()}:
            fp.close()
            raise StoreError(
                ErrorKind.REFUSED,
                f"{redact_url(req.full_url)} redirects to {scheme}, which is not followed",
                cause="the server is misconfigured, or its answers are changed on the way",
                hint="use another mirror, and inform the publisher",
            )
        fp.close()  # urllib would read the body to its end, which a server need not send
        return super().redirect_request(req, fp, code, msg, headers, newurl)
