"""HTTP downloads with a limit of bytes and one deadline; redirects keep the scheme or improve it.

Without a deadline a server that sends a byte now and then keeps a client for ever: TUF's slow retrieval
attack.
"""

import threading
import time
import urllib.request
from collections.abc import Callable, Generator, Iterable, Iterator
from queue import Empty, Queue
from typing import Any, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")

FILE_SECONDS = 3600.0
"""Deadline of a file that may be large."""

_RECEIVE_SECONDS = 30.0
"""Time limit of a connection attempt and of one receive."""

_PIECE = 1024 * 1024

_KEPT_HEADERS = {"Range", "User-agent"}
"""Headers that a redirected request has, too, as urllib writes their names."""


class WeakerSchemeError(ConnectionError):
    """A redirect to another scheme than https or that of the request, `scheme`."""

    def __init__(self, address: str, scheme: str) -> None:
        super().__init__(f"{address} redirects to {scheme}, which is not followed")
        self.scheme = scheme


def within(seconds: float, items: Iterable[T]) -> Generator[T, None, None]:
    """The items, which a thread of its own produces. Raises TimeoutError after `seconds`."""
    end = time.monotonic() + seconds
    queue: Queue[tuple[T] | BaseException | None] = Queue(maxsize=4)
    abandoned = threading.Event()

    def produce() -> None:
        try:
            for item in items:
                queue.put((item,))
                if abandoned.is_set():
                    return
            queue.put(None)
        except BaseException as error:  # noqa: BLE001 - raised again where the items are used
            queue.put(error)

    threading.Thread(target=produce, daemon=True, name="download").start()
    try:
        while (left := end - time.monotonic()) > 0:
            given = queue.get(timeout=left)
            if given is None:
                return
            if isinstance(given, BaseException):
                raise given
            yield given[0]
    except Empty:
        pass
    finally:
        abandoned.set()
        while not queue.empty():  # one that waits for space continues, and ends
            queue.get_nowait()
    raise TimeoutError(f"it was not complete after {seconds:.0f} s")


def pieces(read: Callable[[int], bytes], limit: int) -> Iterator[bytes]:
    """What `read` returns until it is empty. Raises ConnectionError behind `limit` bytes."""
    left = limit
    while piece := read(min(_PIECE, left) or 1):
        if len(piece) > left:
            raise ConnectionError(f"it is longer than {limit} bytes")
        left -= len(piece)
        yield piece


def download(
    request: str | urllib.request.Request,
    *handlers: urllib.request.BaseHandler,
    limit: int,
    seconds: float,
) -> Generator[bytes, None, None]:
    """The content of an address, at most `limit` bytes, through proxies of the environment or `handlers`.

    Raises OSError, URLError among them, ValueError, http.client.HTTPException.
    """

    def received() -> Iterator[bytes]:
        with open_url(request, *handlers) as response:
            yield from pieces(response.read1, limit)  # read1 returns what has arrived

    return within(seconds, received())


def open_url(request: str | urllib.request.Request, *handlers: urllib.request.BaseHandler) -> Any:
    """The response of an http or https address, without a deadline. Raises as `download`."""
    return urllib.request.build_opener(_Redirects(), *handlers).open(request, timeout=_RECEIVE_SECONDS)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to the same scheme and from http to https, without headers that may have secrets."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        fp.close()  # urllib would read the body to its end, which a server need not send
        scheme = urlsplit(newurl).scheme.lower()
        if scheme not in {"https", urlsplit(req.full_url).scheme.lower()}:
            raise WeakerSchemeError(req.full_url, scheme)
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made:  # without the proxy's password, which the proxy's handler adds where it belongs
            made.headers = {name: value for name, value in made.headers.items() if name in _KEPT_HEADERS}
        return made
