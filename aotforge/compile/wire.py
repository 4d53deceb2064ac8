"""Messages between builder and workers: frames of a JSON object and bytes, over a socket or a pipe."""

from __future__ import annotations

import json
import struct
from typing import Any

_HEAD = struct.Struct("<II")


def frame(message: dict[str, Any], payload: bytes = b"") -> bytes:
    """One frame: u32 sizes of both parts, the JSON, the payload."""
    text = json.dumps(message, separators=(",", ":")).encode("ascii")
    return b"".join((_HEAD.pack(len(text), len(payload)), text, payload))


class Frames:
    """Joins pieces of a stream to frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> list[tuple[dict[str, Any], bytes]]:
        """Frames that this piece completes. Raises ValueError for one without a JSON object."""
        self._buffer += piece
        complete = []
        while len(self._buffer) >= _HEAD.size:
            text, payload = _HEAD.unpack_from(self._buffer)
            middle = _HEAD.size + text
            end = middle + payload
            if len(self._buffer) < end:
                break
            message = json.loads(self._buffer[_HEAD.size : middle])
            if not isinstance(message, dict):
                raise ValueError("a frame without a JSON object")
            complete.append((message, bytes(self._buffer[middle:end])))
            del self._buffer[:end]
        return complete
