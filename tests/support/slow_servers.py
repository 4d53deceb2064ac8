"""Servers that are slow on purpose, and what readers are then expected to do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from aotforge.publish.stores.store import StoreError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\nETag: tag\r\nX-Padding: "
BODY = HEAD + b"\r\n\r\n"


@contextmanager
def slow_server(head: bytes, piece: bytes, cut: int = 10**9) -> Iterator[str]:
    """Sends `head`, then `piece` every 10 ms to its end; closes the connection after `cut` pieces."""
    listener, ended = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):  # the reader has left
            connection.recv(65536)
            connection.sendall(head)
            for _ in range(cut):
                if ended.wait(0.01):
                    return
                connection.sendall(piece)

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
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def refused(act: Callable[[], object], message: str) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        act()
    assert caught.value.cause and caught.value.hint
