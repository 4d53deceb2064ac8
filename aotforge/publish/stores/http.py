"""Reader over HTTP(S) from any web server, with Range requests (RFC 9110, section 14) where supported."""

import http.client
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import quote, unquote, urlsplit

from aotforge.base.downloads import WeakerSchemeError, open_url
from aotforge.publish.stores.reading import TransientError, retry
from aotforge.publish.stores.store import CHUNK, DeniedError, MissingError, Sleep, StoreError, redact_url

_RETRIED = {408, 425, 429, 500, 502, 503, 504}
_MISSING = (MissingError, "there is no such file at this address", "check it")
_DENIED = (DeniedError, "the server requires other credentials", "check user and password")
_STATUSES = {404: _MISSING, 410: _MISSING, 401: _DENIED, 403: _DENIED, 407: _DENIED}


class HttpReader:
    """Objects below an address. Temporary failures are retried with growing pauses."""

    def __init__(self, base: str, *, sleep: Sleep = time.sleep) -> None:
        self._url = redact_url(base)  # first: raises StoreError for a malformed address
        self._parts = urlsplit(base)
        self._sleep = sleep

    @property
    def url(self) -> str:
        """The address without user, password and query."""
        return self._url

    def read(self, name: str, *, start: int = 0) -> Iterator[bytes]:
        """Resumes with Range after a broken connection; without Range support, reads again and skips."""
        return retry(lambda at: self._chunks(name, at), start, self._sleep)

    def _chunks(self, name: str, start: int) -> Iterator[bytes]:
        place = f"{self._url}/{name}"
        try:
            with open_url(self._request(name, start)) as response:
                skip = 0 if response.status == http.client.PARTIAL_CONTENT else start
                # read1 returns what has arrived: progress and deadlines must not wait for a full chunk
                for chunk in iter(lambda: response.read1(CHUNK), b""):
                    if piece := chunk[skip:]:
                        yield piece
                    skip = max(0, skip - len(chunk))
                if left := getattr(response, "length", None):
                    raise http.client.IncompleteRead(b"", left)
        except WeakerSchemeError as error:
            raise StoreError(
                f"{place} redirects to {error.scheme}, which is not followed",
                cause="the server is misconfigured, or its answers are changed on the way",
                hint="use another mirror, and inform the publisher",
            ) from None
        except urllib.error.HTTPError as error:
            error.close()
            answer = f"the server answered {error.code} {http.client.responses.get(error.code, '')}".rstrip()
            if error.code in _RETRIED:
                raise TransientError(place, answer) from None
            kind, cause, hint = _STATUSES.get(error.code, (StoreError, "", ""))
            raise kind(f"{place}: {answer}", cause=cause, hint=hint) from None
        # ValueError: a redirect to an address that is not valid
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            text = str(reason) or "the connection was closed"
            if isinstance(reason, http.client.InvalidURL):
                text = "the address cannot be used"  # the original text quotes the address with its query
            raise TransientError(place, f"{type(reason).__name__}: {text}") from None

    def _request(self, name: str, start: int) -> urllib.request.Request:
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
        return request
