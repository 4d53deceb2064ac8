"""Advisory locks by name in one file: byte ranges, one byte per name.

Open-file-description locks (fcntl(2), F_OFD_SETLK) end with the descriptor, so a build that is killed leaves none behind, there are no lock
files to clean up, and two caches in one process exclude each other as two processes do.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
from pathlib import Path

_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid


class LockFile:
    """Locks on names; each is held until released or until the file is closed."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def acquire(self, name: str, *, wait: bool = False) -> bool:
        """Take the lock. Without `wait`, False when somebody else holds it."""
        try:
            self._set(fcntl.F_WRLCK, name, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def release(self, name: str) -> None:
        """Give the lock back."""
        self._set(fcntl.F_UNLCK, name, fcntl.F_OFD_SETLK)

    def close(self) -> None:
        """Give all locks back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _set(self, kind: int, name: str, command: int) -> None:
        # two names on one byte would only wait for each other
        offset = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 2
        fcntl.fcntl(self._descriptor, command, _FLOCK.pack(kind, os.SEEK_SET, offset, 1, 0))
