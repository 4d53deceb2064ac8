"""Reader over HTTP(S) from any web server, with Range requests (RFC 9110, section 14) where supported."""

import http.client
import random
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from aotforge.base.downloads import WeakerSchemeError, open_url
from aotforge.publish.stores.store import CHUNK, ErrorKind, Sleep, StoreError, redact_url

_RETRIED = {408, 425, 429, 500, 502, 503, 504}
_MISSING = (ErrorKind.MISSING, "there is no such file at this address", "check the address")
_DENIED = (ErrorKind.DENIED, "the server requires other credentials", "check user and password")
_STATUSES = {
    **dict.fromkeys(_RETRIED, (ErrorKind.UNAVAILABLE, "tried {} times", "try again later")),
    **dict.fromkeys((404, 410), _MISSING),
    **dict.fromkeys((401, 403, 407), _DENIED),
}


class HttpReader:
    """Objects below an address. Temporary failures are retried up to `attempts` requests, with growing pauses."""

    def __init__(self, base: str, *, attempts: int = 5, sleep: Sleep = time.sleep) -> None:
        self._url = redact_url(base)  # first: raises StoreError for a malformed address
        self._parts = urlsplit(base)
        self._attempts = attempts
        self._sleep = sleep

    @property
    def url(self) -> str:
        """The address without user, password and query."""
        return self._url

    def read(self, name: str, *, start: int = 0) -> Iterator[bytes]:
        """Resumes with Range after a broken connection; without Range support, reads again and skips."""
        position, failures = start, 0
        while True:
            try:
                with self._open(name, start=position) as response:
                    skip = 0 if response.status == http.client.PARTIAL_CONTENT else position
                    # read1 returns what has arrived: progress and deadlines must not wait for a full chunk
                    for chunk in iter(lambda: response.read1(CHUNK), b""):
                        piece, skip = chunk[skip:], max(0, skip - len(chunk))
                        if piece:
                            position += len(piece)
                            failures = 0
                            yield piece
                    left = getattr(response, "length", None)
                    if not left:
                        return
                    raise http.client.IncompleteRead(b"", left)
            except WeakerSchemeError as error:
                raise StoreError(
                    ErrorKind.REFUSED,
                    f"{self._url}/{name} redirects to {error.scheme}, which is not followed",
                    cause="the server is misconfigured, or its answers are changed on the way",
                    hint="use another mirror, and inform the publisher",
                ) from None
            # ValueError: a redirect to what is not a valid address
            except (OSError, ValueError, http.client.HTTPException) as error:
                failures += 1
                self._retry(name, failures, error)

    def _open(self, name: str, *, start: int) -> Any:
        parts = self._parts
        query = f"?{parts.query}" if parts.query else ""
        host = parts.netloc.rpartition("@")[2]
        address = f"{parts.scheme}://{host}{parts.path.rstrip('/')}/{quote(name)}{query}"
        request = urllib.request.Request(address, headers={"User-Agent": "aotforge"})
        if "@" in parts.netloc:
            credentials = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
            basic = b64encode(credentials.encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {basic}")
        if start:
            request.add_header("Range", f"bytes={start}-")
        return open_url(request)

    def _retry(self, name: str, failures: int, error: Exception) -> None:
        """Pauses before the next attempt. Raises StoreError after the last one, or when the answer is final."""
        code = 0
        if isinstance(error, urllib.error.HTTPError):
            code = error.code
            error.close()
        if failures >= self._attempts or (code and code not in _RETRIED):
            raise self._error(name, code, error) from (None if code else error)
        self._sleep(min(20.0, random.uniform(0.5, 1.0) * 2 ** (failures - 1)))

    def _error(self, name: str, code: int, error: Exception) -> StoreError:
        place = f"{self._url}/{name}"
        if code:
            what = f"{place}: the server answered {code} {http.client.responses.get(code, '')}".rstrip()
            kind, cause, hint = _STATUSES.get(code, (ErrorKind.REFUSED, "", ""))
            return StoreError(kind, what, cause=cause.format(self._attempts), hint=hint)
        reason = getattr(error, "reason", None) or error
        text = str(reason) or "the connection was closed"
        if isinstance(reason, http.client.InvalidURL):
            text = "the address cannot be used"  # the original text quotes the address with its query
        return StoreError(
            ErrorKind.UNAVAILABLE,
            f"{place} cannot be read: {type(reason).__name__}: {text}",
            cause=f"the server or the network failed {self._attempts} times",
            hint="run the same command again: it continues where it stopped",
        )
