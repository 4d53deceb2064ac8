"""A web server for tests: with or without Range, with broken connections and failing responses on demand."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path


@dataclass
class Web:
    """Behaviour and log of the server. `requests`: path and Range of every request.

    `cuts`: bytes after which the connection breaks, for each of the next GETs of archives; `statuses`: status
    of each of the
    next responses, 0 for the usual one.
    """

    url: str = ""
    ranges: bool = True
    cuts: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    sent: int = 0


@contextmanager
def _running(handler: Callable[..., http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server on a free port of this machine."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The address of Python's own web server over a folder, and the lines that it logs."""
    log: list[str] = []

    class Logging(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            log.append(format % args)

    with _running(partial(Logging, directory=str(folder))) as url:
        yield f"{url}/", log


@contextmanager
def running_web(folder: Path) -> Iterator[Web]:
    """Serves `folder` on a free port of this machine."""
    web = Web()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            where = self.headers.get("Range", "")
            web.requests.append((self.path, where))
            status = web.statuses.pop(0) if web.statuses else 0
            path = folder / self.path.partition("?")[0].lstrip("/").replace("%2B", "+")
            if status or not path.is_file():
                self.send_error(status or 404)
                return
            data = path.read_bytes()
            start = int(where.removeprefix("bytes=").rstrip("-")) if where and web.ranges else 0
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            body = data[start:]
            if web.cuts and path.name.endswith(".gz"):
                body = body[: web.cuts.pop(0)]
            web.sent += len(body)
            self.wfile.write(body)
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    with _running(Handler) as web.url:
        yield web
