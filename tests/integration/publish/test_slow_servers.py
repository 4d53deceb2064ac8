"""Servers that are slow on purpose: downloads end with an error, and other commands are not delayed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from urllib.request import ProxyHandler, Request

import pytest

from aotforge.base.downloads import WeakerSchemeError, _Redirects, download, within
from aotforge.publish.fetch import fetch_file
from aotforge.publish.index import IndexedFile
from aotforge.publish.keys import KeySet
from aotforge.publish.stores import reading
from aotforge.publish.stores.http import HttpReader
from aotforge.publish.stores.reading import read_small
from aotforge.publish.stores.s3 import S3Store
from aotforge.publish.stores.store import Reader
from aotforge.publish.trust import trusted_index
from tests.support.s3 import Server
from tests.support.slow_servers import BODY, HEAD, refused, slow_server


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines that a test can wait for."""
    monkeypatch.setattr(reading, "METADATA_SECONDS", 0.3)
    monkeypatch.setattr(reading, "FILE_SECONDS", 0.3)


FILE = IndexedFile(name="archive.tar.gz", size=100_000, sha256="0" * 64)
DOWNLOADS: dict[str, Callable[[Reader, Path], object]] = {
    "metadata": lambda reader, folder: read_small(reader, "file", limit=10**6),
    "file": lambda reader, folder: fetch_file(reader, "file", FILE, folder),
}


@pytest.mark.parametrize("kind", ["http", "s3"])
@pytest.mark.parametrize("download", DOWNLOADS)
@pytest.mark.parametrize("head", [b"HTTP/1.1 100 ", HEAD, BODY], ids=["status", "headers", "body"])
@pytest.mark.usefixtures("short")
def test_a_byte_now_and_then(head: bytes, download: str, kind: str, tmp_path: Path) -> None:
    with slow_server(head, b"x") as url:
        readers: dict[str, Callable[[], Reader]] = {
            "http": lambda: HttpReader(url),
            "s3": lambda: S3Store(Server(url=url).client(), "bucket", ""),
        }
        refused(lambda: DOWNLOADS[download](readers[kind](), tmp_path), "/file was not complete after")


@pytest.mark.usefixtures("short")
def test_an_index_a_byte_now_and_then(keys: KeySet, tmp_path: Path) -> None:
    with slow_server(BODY, b"x") as url:
        refused(lambda: trusted_index(HttpReader(url), keys.roots[0], tmp_path), "was not complete after")


def test_a_deadline_ends_what_is_waited_for() -> None:
    """The producing thread ends with the next item: also one that waits because nothing takes its items."""
    closed = threading.Event()

    def items() -> Iterator[int]:
        try:
            yield from range(10**9)
        finally:
            closed.set()

    taken = within(0.2, items())
    assert list(islice(taken, 3)) == [0, 1, 2]
    with pytest.raises(TimeoutError, match="not complete after 0 s"):
        for _ in taken:
            pass
    assert closed.wait(300)


@pytest.mark.parametrize(("limit", "complete"), [(100, True), (99, False), (1, False)])
def test_a_download_has_a_limit_of_bytes(limit: int, complete: bool, tmp_path: Path) -> None:
    with slow_server(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 50, cut=2) as url:
        received = download(url, limit=limit, seconds=300.0)
        if complete:
            assert b"".join(received) == b"x" * 100
            return
        assert next(received)[:1] == b"x"
        with pytest.raises(ConnectionError, match=f"it is longer than {limit} bytes"):
            list(received)


@pytest.mark.parametrize(
    ("old", "new", "followed"),
    [
        ("http://a/x", "http://b/x", True),
        ("http://a/x", "https://b/x", True),
        ("https://a/x", "https://b/x", True),
        ("https://a/x", "http://a/x", False),
        ("https://a/x", "HTTP://a/x", False),
        ("http://a/x", "ftp://a/x", False),
        ("http://a/x", "file:///etc/passwd", False),
    ],
)
def test_redirects_keep_the_scheme_or_improve_it(old: str, new: str, followed: bool, tmp_path: Path) -> None:
    with (tmp_path / "answer").open("wb") as answer:

        def redirect() -> Request | None:
            return _Redirects().redirect_request(Request(old), answer, 302, "Found", {}, new)

        if followed:
            assert redirect() is not None
        else:
            with pytest.raises(WeakerSchemeError, match="which is not followed"):
                redirect()


@pytest.mark.parametrize("behind_proxy", [True, False])
def test_the_password_of_a_proxy_is_sent_to_the_proxy_alone(behind_proxy: bool) -> None:
    """The proxy passes on a server's redirect, to an address that may have no proxy; the request's own
    headers are kept."""
    heads: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))
    here = f"127.0.0.1:{listener.getsockname()[1]}"
    target = "http://other.test/x" if behind_proxy else f"http://{here}/direct"

    def serve() -> None:
        for answer in (f"302 Found\r\nLocation: {target}", "206 Partial Content"):
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                heads.append(connection.recv(65536))
                connection.sendall(f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n".encode())

    class Proxy(ProxyHandler):
        def proxy_open(self, req: Request, proxy: str, type: str) -> None:
            if (
                "/direct" not in req.full_url
            ):  # as with no_proxy, which leaves out each address of this machine
                super().proxy_open(req, proxy, type)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    request = Request("http://mirror.test/x", headers={"Range": "bytes=1-"})
    proxy = Proxy({"http": f"http://user:secret@{here}"})
    assert list(download(request, proxy, limit=0, seconds=300.0)) == []
    thread.join(300)
    listener.close()
    assert b"GET http://mirror.test/x" in heads[0] and b"Proxy-Authorization: Basic" in heads[0].title()
    assert (b"proxy-authorization" in heads[1].lower()) == behind_proxy
    assert b"Range: bytes=1-" in heads[1]


def test_a_redirect_to_what_is_no_address() -> None:
    head = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://[::1/x\r\n\r\n"
    with slow_server(head, b"", cut=0) as url:
        refused(lambda: list(HttpReader(url, sleep=lambda _: None).read("tuf")), "Invalid IPv6 URL")
