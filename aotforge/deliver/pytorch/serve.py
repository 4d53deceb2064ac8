"""HTTP server for releases at the addresses that PyTorch's build requests, with byte ranges.

For tests and private networks: plain HTTP, only the files of the releases in one folder, the signed index when the folder was
published to, so that `./dev install --from` works as well, and the index of wheels when `./dev docs --releases` wrote one, for pip.
"""

import os
import re
import sys
import urllib.parse
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO

from aotforge.base.files import open_regular
from aotforge.base.printable import printable
from aotforge.errors import ReleaseError, ToolchainError
from aotforge.formats.sums import SUMS

_CHUNK = 1 << 16
_INDEX = re.compile(r"tuf/(timestamp|[0-9]+\.(root|targets|snapshot))\.json")
_WHEELS = re.compile(r"/(simple/([a-z0-9-]+/)?)")
_JSON = "application/vnd.pypi.simple.v1+json"
_RANGE = re.compile(r"bytes=([0-9]{0,19})-([0-9]{0,19})")


class ReleaseServer(ThreadingHTTPServer):
    """Serves `<folder>/<release>/<file>` at `/<release>/<file>` for every release in `folder`; `url` ends in a slash."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, folder: Path, *, host: str, port: int, log: Callable[[str], None]) -> None:
        self.folder = folder.resolve()
        self.log = log
        super().__init__((host, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """One line instead of a traceback: clients disconnect at any time."""
        self.log(printable(f"{client_address[0]} {sys.exc_info()[1]!r}"))

    @property
    def url(self) -> str:
        """The base address, for PYTORCH_AOTRITON_BASE_URL."""
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}/"


def serve(folder: Path, *, host: str, port: int, log: Callable[[str], None]) -> ReleaseServer:
    """A listening server for the releases in `folder`; `serve_forever` runs it. Port 0 selects a free one.

    Raises ReleaseError when there is no release, ToolchainError when the address cannot be used.
    """
    if not any(folder.glob(f"[!.]*/{SUMS}")):
        raise ReleaseError(
            f"{folder} holds no release",
            cause=f"none of its folders has a {SUMS}",
            hint="./dev build makes releases/dist",
        )
    try:
        return ReleaseServer(folder, host=host, port=port, log=log)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else "ports are 0 to 65535"
        raise ToolchainError(
            f"{host}:{port} cannot be used: {reason}",
            cause="another program uses the port, or the address is not this machine's",
            hint="choose another --port; 0 selects a free one",
        ) from error


class _Handler(BaseHTTPRequestHandler):
    server: ReleaseServer
    protocol_version = "HTTP/1.1"
    timeout = 60.0  # of a client that neither sends nor reads

    def do_GET(self) -> None:
        """A file or a part of it; for HEAD the headers only."""
        parts, kind = self._page() or (self._parts(), "application/octet-stream")
        with ExitStack() as opened:
            try:
                path = _file_of(self.server.folder, parts, release=kind == "application/octet-stream")
                file = opened.enter_context(open_regular(path, flags=0))
            except (OSError, ValueError):  # also a name that is too long or cannot be encoded
                self.send_error(HTTPStatus.NOT_FOUND, "not a file of a release")
                return
            self._send(file, os.fstat(file.fileno()).st_size, kind)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """One line per request."""
        self.server.log(printable(f"{self.address_string()} {format % args}"))

    def _address(self) -> str:
        """The requested path; urlsplit would take one that begins with // for a host, which may be malformed."""
        return self.path.partition("?")[0].partition("#")[0]

    def _parts(self) -> Sequence[str]:
        """The requested file: `/<release>/<file>`, or a file of the index; empty for another address."""
        parts = urllib.parse.unquote(self._address()).strip("/").split("/")
        valid = not any(part[:1] in {"", "."} or "\\" in part or "\0" in part for part in parts)
        return parts if len(parts) == 2 and valid else ()

    def _page(self) -> tuple[Sequence[str], str] | None:
        """A page of the index of wheels, in the form that the client requests (PEP 691); None for another address."""
        found = _WHEELS.fullmatch(self._address())
        if not found:
            return None
        accepted = self.headers.get("Accept", "").partition(",")[0].partition(";")[0].strip()
        name, kind = (
            ("index.json", _JSON) if accepted == _JSON else ("index.html", "text/html; charset=utf-8")
        )
        return (*found[1].strip("/").split("/"), name), kind

    def _send(self, file: BinaryIO, size: int, kind: str) -> None:
        wanted = self.headers.get("Range")
        part = _part(wanted, size) if wanted else None
        if part == (0, -1):
            unsatisfiable = {"Content-Range": f"bytes */{size}", "Content-Length": "0"}
            self._send_head(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, unsatisfiable)
            return
        first, last = part or (0, size - 1)
        left = last - first + 1
        headers = {
            "Content-Type": kind,
            "Content-Length": str(left),
            "Accept-Ranges": "bytes",
        }
        if part:
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        self._send_head(HTTPStatus.PARTIAL_CONTENT if part else HTTPStatus.OK, headers)
        if self.command == "HEAD":
            return
        file.seek(first)
        while left and (chunk := file.read(min(left, _CHUNK))):
            self.wfile.write(chunk)
            left -= len(chunk)
        if left:  # the file was truncated meanwhile: a broken connection shows that bytes are missing
            self.close_connection = True

    def _send_head(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def _file_of(folder: Path, parts: Sequence[str], *, release: bool) -> Path:
    """The path of a requested file. Raises FileNotFoundError for files of a `release` in a folder without SHA256SUMS."""
    path = folder.joinpath(*parts)
    if release and not _INDEX.fullmatch("/".join(parts)):
        (path.parent / SUMS).stat()
    return path


def _part(header: str, size: int) -> tuple[int, int] | None:
    """First and last byte of a single range (RFC 9110, section 14); None to ignore it, (0, -1) if not satisfiable."""
    found = _RANGE.fullmatch(header.strip())
    if not found or not (found[1] or found[2]):
        return None
    if not found[1]:
        count = min(int(found[2]), size)
        return (size - count, size - 1) if count else (0, -1)
    first, last = int(found[1]), min(int(found[2]) if found[2] else size - 1, size - 1)
    if found[2] and int(found[2]) < first:
        return None
    return (first, last) if first < size else (0, -1)
