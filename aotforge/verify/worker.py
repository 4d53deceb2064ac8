"""The worker process: `python -m aotforge.verify.worker KERNELS_ROOT CACHE`. Tasks come on standard input, verdicts go to
standard output, both pickled with their length before them; what cases print goes to standard error.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
from pathlib import Path
from typing import IO

from aotforge.errors import AotforgeError
from aotforge.verify.judge import judge

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


def main(kernels_root: Path, cache: Path) -> None:
    """Judge until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            task = receive(sys.stdin.buffer)
        except EOFError:
            return
        answer: object
        try:
            answer = judge(task, kernels_root=kernels_root, cache=cache)  # type: ignore[arg-type]
        except AotforgeError as error:
            answer = error
        send(answers, answer)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
