"""The worker process: `python -m aotforge.verify.worker KERNELS_ROOT CACHE PARENT`. Tasks come on standard input, verdicts go to
standard output, both pickled with their length before them; what cases print goes to standard error.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import struct
import sys
from pathlib import Path
from typing import IO

from aotforge.errors import AotforgeError
from aotforge.verify.check_image import check_image

_PR_SET_PDEATHSIG = 1
HEADER = struct.Struct("<Q")


def send(file: IO[bytes], value: object) -> None:
    """Write one value. Raises OSError when the other side is gone."""
    data = pickle.dumps(value)
    file.write(HEADER.pack(len(data)) + data)
    file.flush()


def receive(file: IO[bytes]) -> object:
    """Read one value. Raises EOFError when the other side is gone."""
    header = file.read(HEADER.size)
    if len(header) < HEADER.size:
        raise EOFError
    (size,) = HEADER.unpack(header)
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)


def main(kernels_root: Path, cache: Path, parent: int) -> None:
    """Judge until standard input ends or the process `parent` dies, however it dies (prctl(2), PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the call
        return
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            task = receive(sys.stdin.buffer)
        except EOFError:
            return
        answer: object
        try:
            answer = check_image(task, kernels_root=kernels_root, cache=cache)  # type: ignore[arg-type]
        except AotforgeError as error:
            answer = error
        send(answers, answer)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
