"""Checks that images of a release are byte for byte what assembler and linker make of their texts.

The emulator compares machine code with the text; what it does not read (segments, parts of the descriptor,
metadata) decides on a GPU, too. Workers (`python -m aotforge.pipeline.image_texts FD PARENT`) assemble texts.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from aotforge.base.workers import READY, WorkerEnded, WorkerPool, WorkerProcess, open_connection
from aotforge.errors import AotforgeError, DecodeError, ReleaseError, ToolchainError
from aotforge.targets.backends import backend_of_arch
from aotforge.verify.pool import reader_environment
from aotforge.verify.verdict import ImageTask
from vgpu.emulator.assembly import assemble, link

_SECONDS = 120.0
"""For one text; the largest take a second."""


def check_texts(tasks: Sequence[ImageTask], *, jobs: int | None = None) -> None:
    """Raises ReleaseError for an image of an emulated arch that its text does not make, ToolchainError."""
    emulated = [task for task in tasks if backend_of_arch(task.arch).executed_by == "virtual GPU"]
    if not emulated:
        return
    threads = ThreadPoolExecutor(min(jobs or len(os.sched_getaffinity(0)), len(emulated)))
    pool = WorkerPool(lambda: WorkerProcess(__name__, environment=reader_environment()), seconds=_SECONDS)
    try:
        for future in as_completed([threads.submit(_check, pool, task) for task in emulated]):
            future.result()
    finally:  # Ctrl-C, or an image that is not its text's: the others do not continue
        pool.close()
        threads.shutdown(cancel_futures=True)


def _check(pool: WorkerPool, task: ImageTask) -> None:
    """Raises ReleaseError where the text does not give the image, ToolchainError."""
    try:
        answer: str | AotforgeError = pool.request((task.arch, task.asm))
    except WorkerEnded as ended:
        answer = DecodeError(f"the assembler {ended.reason}" + (f": {ended.output}" if ended.output else ""))
    if isinstance(answer, AotforgeError) and not isinstance(answer, DecodeError):
        raise ToolchainError(answer.what, hint="install requirements/build.txt")
    if answer != task.digest:
        fault = answer.what if isinstance(answer, DecodeError) else "assembled again, it is another file"
        raise ReleaseError(
            f"the image of {task.label} is not the one that its assembly text gives: {fault}",
            cause="image and text are of different builds or toolchains, or one was altered",
            hint="fetch the release again, or verify it with the checkout that it was built from",
        )


def main(arguments: Sequence[str]) -> None:
    """Assemble texts until the connection closes; answers are the image's SHA-256, or the error."""
    connection, _ = open_connection(arguments)
    connection.send(READY)
    while True:
        try:
            arch, text = connection.recv()
        except EOFError:
            return
        answer: str | AotforgeError
        try:
            answer = hashlib.sha256(link(assemble(text, arch))).hexdigest()
        except AotforgeError as error:
            answer = error
        except Exception as error:  # noqa: BLE001 - the linker's
            answer = DecodeError(f"{type(error).__name__}: {error}")
        connection.send(answer)


if __name__ == "__main__":
    main(sys.argv[1:])
