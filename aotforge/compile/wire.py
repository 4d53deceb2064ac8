"""What builder and workers say to each other: frames of a JSON object and bytes, over a socket."""

from __future__ import annotations

import json
import struct
from dataclasses import asdict
from typing import Any

from aotforge.plan.model import CompileJob
from aotforge.plan.serial import build

_HEAD = struct.Struct("<II")


def frame(message: dict[str, Any], payload: bytes = b"") -> bytes:
    """One frame: u32 sizes of both parts, the JSON, the payload."""
    text = json.dumps(message, separators=(",", ":")).encode("ascii")
    return b"".join((_HEAD.pack(len(text), len(payload)), text, payload))


class Frames:
    """Puts frames together from pieces as they arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> list[tuple[dict[str, Any], bytes]]:
        """Frames that are complete now. Raises ValueError for one that holds no JSON object."""
        self._buffer += piece
        complete = []
        while len(self._buffer) >= _HEAD.size:
            text, payload = _HEAD.unpack_from(self._buffer)
            end = _HEAD.size + text + payload
            if len(self._buffer) < end:
                break
            middle = _HEAD.size + text
            message = json.loads(self._buffer[_HEAD.size : middle])
            if not isinstance(message, dict):
                raise ValueError("a frame without a JSON object")
            complete.append((message, bytes(self._buffer[middle:end])))
            del self._buffer[:end]
        return complete


def job_to_wire(job: CompileJob) -> dict[str, Any]:
    """A job as JSON values."""
    return asdict(job)


def job_from_wire(tree: dict[str, Any]) -> CompileJob:
    """Inverse of `job_to_wire`."""
    return build(CompileJob, tree)
