"""Worker process: `python -m aotforge.verify.worker KERNELS_ROOT CACHE PARENT FD`.

Tasks and answers are pickled over a `multiprocessing` connection on the socket FD. An answer is a verdict or an error.
"""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection
from pathlib import Path

from aotforge.compile.worker import die_with_parent
from aotforge.errors import AotforgeError
from aotforge.verify.check_image import check_image


def main(kernels_root: Path, cache: Path, parent: int, connection: Connection) -> None:
    """Check images until the connection closes or the process `parent` ends."""
    die_with_parent(parent)
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        try:
            answer: object = check_image(task, kernels_root=kernels_root, cache=cache)
        except AotforgeError as error:
            answer = error
        connection.send(answer)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), Connection(int(sys.argv[4])))
