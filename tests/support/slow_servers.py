"""Servers that are slow on purpose, by a clock that they advance, and what readers are then expected to do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from aotforge.publish.stores.store import ErrorKind, StoreError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\nX-Padding: "
BODY = HEAD + b"\r\n\r\n"


class Clock:
    """Seconds that a test decides."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def slow_server(clock: Clock, head: bytes, piece: bytes, seconds: float, cut: int = 10**9) -> Iterator[str]:
    """Sends `head`, then `piece` every `seconds`; closes the connection after `cut` pieces."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65536)
                connection.sendall(head)
                for _ in range(cut):
                    clock.now += seconds
                    connection.sendall(piece)
            except OSError:
                return  # the reader has left

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def refused(act: Callable[[], object], message: str) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        act()
    assert caught.value.kind is ErrorKind.UNAVAILABLE and caught.value.cause and caught.value.hint
