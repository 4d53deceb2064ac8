"""Checks that images of a release are byte for byte what assembler and linker make of their texts.

The emulator compares machine code with the text; what it does not read (segments, parts of the descriptor, metadata) decides on a GPU,
too. Texts of others are assembled in child processes: `python -m aotforge.pipeline.image_texts PARENT FD`.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection

from aotforge.compile.worker import die_with_parent
from aotforge.errors import AotforgeError, DecodeError, ReleaseError, ToolchainError
from aotforge.targets.backends import backend_of_arch
from aotforge.verify.reader_process import READY, ReaderProcess
from aotforge.verify.verdict import ImageTask
from vgpu.emulator.assembly import assemble, link

_SECONDS = 120.0
"""For one text; the largest take a second."""
_ANSWER_LIMIT = 1 << 16


def check_texts(tasks: Sequence[ImageTask], *, jobs: int | None = None) -> None:
    """Raises ReleaseError for an image of the virtual GPU's archs that its text does not make, ToolchainError without Triton."""
    emulated = [task for task in tasks if backend_of_arch(task.arch).executed_by == "virtual GPU"]
    count = min(jobs or len(os.sched_getaffinity(0)), len(emulated))
    if count:
        ended = threading.Event()
        with ThreadPoolExecutor(count) as threads:
            shares = (emulated[first::count] for first in range(count))
            try:
                for _ in threads.map(partial(_check, ended), shares):
                    pass
            finally:
                ended.set()  # Ctrl-C, or an image that is not its text's: the others do not continue


def _check(ended: threading.Event, tasks: Sequence[ImageTask]) -> None:
    worker = _Assembler(__name__)
    try:
        for task in tasks:
            if ended.is_set():
                return
            if fault := worker.fault(task):
                raise ReleaseError(
                    f"the image of {task.label} is not the one that its assembly text gives: {fault}",
                    cause="image and text are of different builds or toolchains, or one was altered",
                    hint="fetch the release again, or verify it with the checkout that it was built from",
                )
    finally:
        worker.kill()


class _Assembler(ReaderProcess):
    def fault(self, task: ImageTask) -> str:
        """Why the text does not give the image, '' when it does. Raises ToolchainError."""
        try:
            answer = self.exchange((task.arch, task.asm), seconds=_SECONDS, most=_ANSWER_LIMIT)
        except TimeoutError:
            return f"it was not assembled in {_SECONDS:g} s"
        except (OSError, EOFError):
            return f"the assembler {self.death()}: {self.log()}"
        state, _, text = answer.decode("utf-8", "replace").partition(" ")
        if state == "toolchain":
            raise ToolchainError(text, hint="install requirements/build.txt")
        if state == "made":
            return "" if text == task.digest else "assembled again, it is another file"
        return text


def main(parent: int, connection: Connection) -> None:
    """Assemble texts until the connection closes or the process `parent` ends; answers have the SHA-256 of the image, or the reason."""
    die_with_parent(parent)
    connection.send_bytes(READY)
    while True:
        try:
            arch, text = connection.recv()
        except EOFError:
            return
        try:
            answer = f"made {hashlib.sha256(link(assemble(text, arch))).hexdigest()}"
        except DecodeError as error:
            answer = f"refused {error.what}"
        except AotforgeError as error:
            answer = f"toolchain {error.what}"
        except Exception as error:  # noqa: BLE001 - the linker's, of a text that others wrote
            answer = f"refused {type(error).__name__}: {error}"
        connection.send_bytes(answer.encode()[: _ANSWER_LIMIT // 2])


if __name__ == "__main__":
    main(int(sys.argv[1]), Connection(int(sys.argv[2])))
