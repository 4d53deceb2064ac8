"""Slow servers of S3 and proxies before them: all attempts of a call end in time."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

import pytest

from aotforge.base import paced_http
from aotforge.publish.stores.s3 import S3Store
from tests.support.s3 import Server
from tests.support.slow_servers import S3_ACTIONS, Clock, refused, slow_server


@pytest.mark.parametrize("status", ["500 Internal Server Error", "404 Not Found", "100 Continue"])
@pytest.mark.parametrize("action", ["read", "names", "put"])
def test_what_is_not_content_has_the_time_of_the_grace(status: str, action: str) -> None:
    """32 MiB of it at the least rate took hours, in each attempt."""
    filler = b"X: " + b"x" * 15_000 + b"\r\n"
    head, piece = f"HTTP/1.1 {status}\r\nContent-Length: 30000000\r\n\r\n".encode(), filler
    if status == "100 Continue":
        head, piece = b"", b"HTTP/1.1 100 Continue\r\n" + filler + b"\r\n"
    clock = Clock()
    with slow_server(clock, head, piece, 5.0, cut=1000) as url:  # 3 kB/s
        store = S3Store(Server(url=url).client(), "bucket", "", sleep=lambda seconds: None, clock=clock)
        refused(lambda: S3_ACTIONS[action](store), r"is too slow: \d+ bytes in \d+ s")


def test_all_attempts_of_a_call_of_s3_have_one_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server ends each of them before it is too slow; a call that follows has a pace of its own."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)

    class Ticking(Clock):
        def __call__(self) -> float:
            self.now += 10.0
            return self.now

    with slow_server(Clock(), b"", b"", 0.0, cut=0) as url:
        once = S3Store(Server(url=url).client(attempts=1), "bucket", "", clock=Ticking())
        refused(lambda: list(once.read("file")), "the connection failed")
        store = S3Store(Server(url=url).client(attempts=9), "bucket", "", clock=Ticking())
        for _ in range(2):
            refused(lambda: list(store.read("file")), r"is too slow: 0 bytes in \d+ s")


def test_time_between_the_requests_of_a_call_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses, and what this process computes for a request: the sum of a large file."""
    clock = Clock()
    monkeypatch.setattr("time.sleep", lambda seconds: setattr(clock, "now", clock.now + 1000.0))
    with slow_server(clock, b"", b"", 0.0, cut=0) as url:
        store = S3Store(Server(url=url).client(attempts=3), "bucket", "", clock=clock)
        refused(lambda: list(store.read("file")), "the connection failed")
    assert clock.now == 3000.0


def test_a_server_of_s3_that_takes_little_of_an_upload() -> None:
    """Each send has a time limit, not all of them together."""
    clock, listener = Clock(), socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            while connection.recv(1 << 14):
                clock.now += 100.0

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    store = S3Store(Server(url=url).client(attempts=1), "bucket", "", clock=clock)
    refused(lambda: store.put_if_absent("file", bytes(16 << 20)), r"is too slow: \d+ bytes in \d+ s")
    listener.close()
    thread.join(300)


def test_a_proxy_of_s3_whose_answer_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to CONNECT comes before there is a connection whose files are paced."""
    monkeypatch.setattr(paced_http, "GRACE_SECONDS", 1.0)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    listener, pause = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            for _ in range(200):
                pause.wait(0.1)
                connection.sendall(b"X: y\r\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{listener.getsockname()[1]}")
    store = S3Store(Server(url="https://s3.test").client(attempts=2), "bucket", "")
    refused(lambda: list(store.read("file")), r"is too slow: 0 bytes in \d+ s")
    listener.close()
    thread.join(300)
