"""A worker of tests: it executes the words of each message."""

from __future__ import annotations

import os
import sys
import time

from aotforge.base.workers import READY, Fork, open_connection


def main() -> None:
    connection, words = open_connection(sys.argv[1:])
    if "refuse" in words:
        sys.exit("no settings")
    connection.send(READY)
    kept = b""
    while True:
        print("begun", flush=True)  # noqa: T201 - the log
        match connection.recv():
            case "abort":
                os.abort()
            case "exit":
                os._exit(3)
            case "hang":
                time.sleep(600)
            case "eat":
                kept = b"x" * (400 << 20)
                time.sleep(600)
            case "fork":
                connection.send(Fork(pid=os.getppid()))
                time.sleep(600)
            case "keep":
                kept = b"x" * (150 << 20)
                connection.send(os.getpid())
            case _:
                connection.send(os.getpid() + 0 * len(kept))


if __name__ == "__main__":
    main()
