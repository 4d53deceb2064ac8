"""Checks that images of a release are byte for byte what assembler and linker make of their texts.

The emulator compares machine code with the text; what it does not read (segments, parts of the descriptor,
metadata) decides on a GPU, too. Workers (`python -m aotforge.pipeline.image_texts FD PARENT`) assemble texts.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from functools import partial

from aotforge.base.workers import WorkerEnded, WorkerPool, WorkerProcess, open_connection
from aotforge.errors import AotforgeError, DecodeError, ReleaseError, ToolchainError
from aotforge.targets.backends import backend_of_arch
from aotforge.verify.pool import each, reader_environment, serve
from aotforge.verify.verdict import ImageTask
from vgpu.emulator.assembly import assemble, link

_SECONDS = 120.0
"""For one text; the largest take a second."""


def check_texts(tasks: Sequence[ImageTask], *, jobs: int | None = None) -> None:
    """Raises ReleaseError for an image of an emulated arch that its text does not make, ToolchainError."""
    emulated = [task for task in tasks if backend_of_arch(task.arch).executed_by == "virtual GPU"]
    if not emulated:
        return
    pool = WorkerPool(lambda: WorkerProcess(__name__, environment=reader_environment()), seconds=_SECONDS)
    for _ in each(pool, partial(_check, pool), emulated, jobs):
        pass


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


def _assembled(task: tuple[str, str]) -> str:
    """SHA-256 of the image that a text gives on an arch. Raises DecodeError, ToolchainError."""
    arch, text = task
    try:
        return hashlib.sha256(link(assemble(text, arch))).hexdigest()
    except AotforgeError:
        raise
    except Exception as error:  # the linker's
        raise DecodeError(f"{type(error).__name__}: {error}") from error


if __name__ == "__main__":
    serve(open_connection(sys.argv[1:])[0], _assembled)
