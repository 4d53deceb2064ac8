"""Reading over HTTP(S): what any web server offers, with Range (RFC 9110, section 14) where it does."""

from __future__ import annotations

import http.client
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlsplit

from aotforge.publish.stores.store import CHUNK, ErrorKind, StoreError

_AGAIN = {408, 425, 429, 500, 502, 503, 504}
_TIMEOUT = 60.0


class HttpReader:
    """Objects below an address. A request that fails for the moment is tried `attempts` times in all, with growing pauses."""

    def __init__(self, base: str, *, attempts: int = 5, sleep: Callable[[float], None] = time.sleep) -> None:
        from aotforge.publish.stores.addresses import redact_url  # noqa: PLC0415 - open.py makes readers

        self._url = redact_url(base)  # first: it says what is wrong with an address
        self._parts = urlsplit(base)
        self._attempts = attempts
        self._sleep = sleep

    @property
    def url(self) -> str:
        """The address without user, password and query."""
        return self._url

    def size(self, name: str) -> int | None:
        """Content-Length, where the server says it."""
        try:
            with self._open(name, method="HEAD") as answer:
                length = answer.headers.get("Content-Length", "")
                return int(length) if length.isdigit() else None
        except StoreError as fault:
            if fault.kind is ErrorKind.MISSING:
                return None
            raise

    def read(self, name: str, *, start: int = 0) -> Iterator[bytes]:
        """Goes on with Range where the connection broke; a server without Range is read again from the beginning."""
        position, failures = start, 0
        while True:
            try:
                with self._open(name, start=position) as answer:
                    skip = 0 if answer.status == http.client.PARTIAL_CONTENT else position
                    for chunk in iter(lambda: answer.read(CHUNK), b""):
                        piece, skip = chunk[skip:], max(0, skip - len(chunk))
                        if piece:
                            position += len(piece)
                            failures = 0
                            yield piece
                    left = getattr(answer, "length", None)
                    if not left:
                        return
                    raise http.client.IncompleteRead(b"", left)
            except (OSError, http.client.HTTPException) as error:
                failures += 1
                if failures >= self._attempts:
                    raise self._broken(name, error) from error
                self._pause(failures)

    def _open(self, name: str, *, start: int = 0, method: str = "GET") -> Any:
        address = f"{self._parts.scheme}://{self._parts.netloc.rpartition('@')[2]}{self._parts.path.rstrip('/')}/{quote(name)}"
        if self._parts.query:
            address += f"?{self._parts.query}"
        request = urllib.request.Request(address, method=method, headers={"User-Agent": "aotforge"})
        if "@" in self._parts.netloc:
            request.add_unredirected_header(
                "Authorization", _basic(self._parts.username, self._parts.password)
            )
        if start:
            request.add_header("Range", f"bytes={start}-")
        for attempt in range(1, self._attempts + 1):
            try:
                return urllib.request.urlopen(request, timeout=_TIMEOUT)
            except urllib.error.HTTPError as error:
                error.close()
                if error.code not in _AGAIN or attempt == self._attempts:
                    raise self._answered(name, error.code) from None
            except (OSError, http.client.HTTPException) as error:
                if attempt == self._attempts:
                    raise self._broken(name, error) from error
            self._pause(attempt)
        raise AssertionError("a loop of at least one attempt returns or raises")

    def _pause(self, failures: int) -> None:
        self._sleep(min(20.0, random.uniform(0.5, 1.0) * 2 ** (failures - 1)))

    def _answered(self, name: str, code: int) -> StoreError:
        what = (
            f"{self._url}/{name}: the server answered {code} {http.client.responses.get(code, '')}".rstrip()
        )
        if code in {404, 410}:
            return StoreError(
                ErrorKind.MISSING,
                what,
                cause="there is no such file at this address",
                hint="check the address",
            )
        if code in {401, 403, 407}:
            return StoreError(
                ErrorKind.DENIED,
                what,
                cause="the server wants other credentials",
                hint="check user and password",
            )
        if code in _AGAIN:
            return StoreError(
                ErrorKind.UNAVAILABLE, what, cause=f"tried {self._attempts} times", hint="try again later"
            )
        return StoreError(ErrorKind.REFUSED, what)

    def _broken(self, name: str, error: Exception) -> StoreError:
        reason = getattr(error, "reason", None) or error
        said = str(reason) or "the connection was closed"
        if isinstance(reason, http.client.InvalidURL):
            said = "the address cannot be used"  # its own words quote the address with its query
        return StoreError(
            ErrorKind.UNAVAILABLE,
            f"{self._url}/{name} cannot be read: {type(reason).__name__}: {said}",
            cause=f"the server or the network failed {self._attempts} times",
            hint="run the same command again: it goes on where it stopped",
        )


def _basic(user: str | None, password: str | None) -> str:
    from base64 import b64encode  # noqa: PLC0415
    from urllib.parse import unquote  # noqa: PLC0415

    return "Basic " + b64encode(f"{unquote(user or '')}:{unquote(password or '')}".encode()).decode()
