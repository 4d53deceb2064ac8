"""Servers that are slow on purpose: downloads end with an error, and other commands are not delayed.

Servers advance the reader's clock themselves, so that minutes of waiting take milliseconds.
"""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from urllib.request import ProxyHandler, Request

import pytest

from aotforge.base import paced_http
from aotforge.base.paced_http import GRACE_SECONDS, LEAST_RATE, _Redirects, paced_opener
from aotforge.errors import TrustError
from aotforge.publish.fetch import fetch_file
from aotforge.publish.keys import KeySet
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.stores.http import HttpReader
from aotforge.publish.stores.reading import METADATA_SECONDS, Pace, read_small
from aotforge.publish.stores.store import Reader, StoreError
from aotforge.publish.trust import trusted_index
from tests.support.publishing import make_release, publish
from tests.support.slow_servers import BODY, HEAD, Clock, refused, slow_server


@pytest.mark.parametrize("head", [HEAD, BODY], ids=["headers", "body"])
def test_a_byte_now_and_then(head: bytes, keys: KeySet, tmp_path: Path) -> None:
    clock = Clock()
    with slow_server(clock, head, b"x", 5.0) as url:
        reader = HttpReader(url, clock=clock)
        refused(
            lambda: trusted_index(reader, keys.roots[0], tmp_path, clock=clock),
            r"is too slow: \d+ bytes in \d+ s|was not complete after \d+ s",
        )


def test_a_connection_that_breaks_after_each_byte(tmp_path: Path) -> None:
    """Every byte is progress, which must not start the time anew."""
    clock = Clock()
    with slow_server(clock, BODY.replace(b"200 OK", b"206 Partial Content"), b"x", 5.0, cut=1) as url:
        reader = HttpReader(url, clock=clock, sleep=lambda seconds: None)
        refused(lambda: list(reader.read("file")), "is too slow")


def test_the_same_bytes_again_and_again() -> None:
    """Without ranges a server sends what is known first: only bytes that are new count as progress."""
    clock, seconds = Clock(), 10.0
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for more in range(1, 1000):
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.recv(65536)
                clock.now += seconds
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * (50_000 + more)
                )

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    reader = HttpReader(
        f"http://127.0.0.1:{listener.getsockname()[1]}", clock=clock, sleep=lambda seconds: None
    )
    try:
        refused(lambda: list(islice(reader.read("file"), 100)), r"is too slow: 500\d\d bytes in 1\d\d s")
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_a_redirect_with_a_body_that_does_not_end() -> None:
    """Its address is all that is needed; urllib reads its body into memory."""
    listener, sent = socket.create_server(("127.0.0.1", 0)), 0

    def serve() -> None:
        nonlocal sent
        for head in (b"302 Found\r\nLocation: /other", b"200 OK\r\nContent-Length: 0"):
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 " + head + b"\r\n\r\n")
                for _ in range(64 if b"302" in head else 0):
                    connection.sendall(bytes(1 << 20))
                    sent += 1

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    reader = HttpReader(f"http://127.0.0.1:{listener.getsockname()[1]}", attempts=1)
    assert b"".join(reader.read("file")) == b""
    thread.join()
    listener.close()
    assert sent < 32


class Pieces:
    """A reader of a file that comes in pieces."""

    url = "place"

    def __init__(self, clock: Clock, piece: bytes, seconds: float, count: int) -> None:
        self.clock, self.piece, self.seconds, self.count = clock, piece, seconds, count

    def read(self, name: str, *, start: int = 0) -> Iterator[bytes]:
        for _ in range(self.count):
            self.clock.now += self.seconds
            yield self.piece


def test_metadata_has_a_deadline_at_any_rate() -> None:
    clock = Clock()
    reader = Pieces(clock, b"x" * 100_000, METADATA_SECONDS / 10, 10)
    assert len(read_small(reader, "in time", limit=10**7, clock=clock)) == 1_000_000
    reader.count = 11
    refused(
        lambda: read_small(reader, "late", limit=10**7, clock=clock),
        "place/late was not complete after 132 s",
    )


@pytest.mark.parametrize("faster", [0.99, 1.01])
def test_only_the_average_rate_counts(faster: float) -> None:
    """A file that takes long because it is large is not refused; pauses are allowed after quick pieces."""
    clock, size = Clock(), 10_000_000
    pace = Pace("archive", clock)
    pace.count(size)
    clock.now += (GRACE_SECONDS + size / LEAST_RATE) * faster
    if faster < 1:
        assert pace.left() > 0
    else:
        refused(pace.left, "archive is too slow: 10000000 bytes in 50[0-9]+ s")


@pytest.fixture
def store(tmp_path: Path, keys: KeySet) -> DirectoryStore:
    made = DirectoryStore(tmp_path / "store")
    publish(make_release(tmp_path / "r1"), made, keys)
    return made


class Stuck:
    """A reader that sends its first byte and then nothing until `go`."""

    def __init__(self, reader: Reader) -> None:
        self.url = reader.url
        self.reader = reader
        self.reached, self.go = threading.Event(), threading.Event()

    def read(self, name: str, *, start: int = 0) -> Iterator[bytes]:
        data = b"".join(self.reader.read(name, start=start))
        yield data[:1]
        self.reached.set()
        assert self.go.wait(300)
        yield data[1:]


def test_other_commands_do_not_wait(store: DirectoryStore, keys: KeySet, tmp_path: Path) -> None:
    stuck = Stuck(store)
    results: list[object] = []
    trust, downloads = tmp_path / "trust", tmp_path / "downloads"
    index = trusted_index(store, keys.roots[0], tmp_path / "first").index
    file = next(file for file in index.releases[0].files if "gfx908" in file.name)
    name = f"0.11.2b-r1/{file.name}"
    for blocked, free in (
        (
            lambda: trusted_index(stuck, keys.roots[0], trust).index,
            lambda: trusted_index(store, keys.roots[0], trust).index,
        ),
        (
            lambda: fetch_file(stuck, name, file, downloads),
            lambda: fetch_file(store, name, file, downloads),
        ),
    ):
        stuck.reached.clear()
        stuck.go.clear()
        thread = threading.Thread(target=lambda act=blocked: results.append(act()), daemon=True)
        thread.start()
        assert stuck.reached.wait(300)
        other = threading.Thread(target=lambda act=free: results.append(act()), daemon=True)
        other.start()
        other.join(300)
        assert results, "a command waits for the slow place of another one"
        stuck.go.set()
        thread.join(300)
        assert results.pop() == results.pop()
    assert [path.name for path in downloads.iterdir()] == [file.sha256]


def test_an_index_read_meanwhile_is_not_rolled_back(
    store: DirectoryStore, keys: KeySet, tmp_path: Path
) -> None:
    """Two commands at once: the one that began before a newer index was seen must not return an older one."""
    old = tmp_path / "old"
    shutil.copytree(tmp_path / "store", old)
    publish(make_release(tmp_path / "r2", "0.11.2b-r2"), store, keys)
    stuck = Stuck(DirectoryStore(old))
    errors: list[BaseException] = []

    def read() -> None:
        try:
            trusted_index(stuck, keys.roots[0], tmp_path / "trust")
        except TrustError as error:
            errors.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert stuck.reached.wait(300)
    assert trusted_index(store, keys.roots[0], tmp_path / "trust").index.version == 2
    stuck.go.set()
    thread.join(300)
    assert "an older index is served" in str(errors[0])
    with pytest.raises(TrustError, match="older index"):
        trusted_index(DirectoryStore(old), keys.roots[0], tmp_path / "trust")


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
            return _Redirects(Pace(old)).redirect_request(Request(old), answer, 302, "Found", {}, new)

        if followed:
            assert redirect() is not None
        else:
            with pytest.raises(StoreError, match="which is not followed"):
                redirect()


@pytest.mark.parametrize("behind_proxy", [True, False])
def test_the_password_of_a_proxy_is_sent_to_the_proxy_alone(behind_proxy: bool) -> None:
    """The proxy passes on a server's redirect, to an address that may have no proxy; the request's own headers are kept."""
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
    opener = paced_opener(Pace("mirror"), Proxy({"http": f"http://user:secret@{here}"}))
    with opener.open(request) as answer:
        assert answer.status == 206
    thread.join(300)
    listener.close()
    assert b"GET http://mirror.test/x" in heads[0] and b"Proxy-Authorization: Basic" in heads[0].title()
    assert (b"proxy-authorization" in heads[1].lower()) == behind_proxy
    assert b"Range: bytes=1-" in heads[1]


def test_a_redirect_to_ftp_ends_the_download() -> None:
    clock = Clock()
    head = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: ftp://127.0.0.1:1/x\r\n\r\n"
    with (
        slow_server(clock, head, b"", 0.0, cut=0) as url,
        pytest.raises(StoreError, match=r"/tuf redirects to ftp, which is not followed"),
    ):
        list(HttpReader(url, sleep=lambda seconds: None).read("tuf"))


def test_a_name_with_many_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection attempt may take its time limit; to each of thousands of addresses that was hours."""
    clock, tried = Clock(), []
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{n}", 1)) for n in range(1, 100)]

    def attempt(self: socket.socket, place: object) -> None:
        tried.append(place)
        clock.now += self.gettimeout() or 1000.0
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket.socket, "connect", attempt)
    reader = HttpReader("http://mirror.test:1", sleep=lambda _: None, clock=clock)
    refused(lambda: list(reader.read("file")), r"is too slow: 0 bytes in 120 s")
    assert len(tried) <= 12


def test_a_redirect_to_what_is_no_address() -> None:
    head = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://[::1/x\r\n\r\n"
    with slow_server(Clock(), head, b"", 0.0, cut=0) as url:
        refused(lambda: list(HttpReader(url, sleep=lambda _: None).read("tuf")), "Invalid IPv6 URL")


def test_a_receive_that_the_rate_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server sends nothing after its headers. The clock is the real one: a receive waits by no other."""
    monkeypatch.setattr(paced_http, "GRACE_SECONDS", 0.5)
    done = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(BODY)
            assert done.wait(300)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        refused(lambda: list(HttpReader(url, attempts=1).read("file")), r"is too slow: \d+ bytes in \d+ s")
    finally:
        done.set()
        thread.join()
        listener.close()
