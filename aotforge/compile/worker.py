"""The worker process: imports Triton once and compiles jobs, one after another.

It shares only a socket with the builder. Each job runs in a fork of the warm process, in a thread of its own.
LLVM's optimiser lets addresses decide where its own order leaves a choice (seen in Triton 3.9.0: operands of `or` chains in
attention kernels). The same job compiled after different others, in one process, therefore gives different bytes, and so do
other versions of glibc. The worker runs with an allocator of this project (aotforge/toolchain), and each fork gives LLVM a fresh
heap: addresses in it depend on the job only. Python's collector is off, because it would free LLVM's objects at times
that depend on Python's version.

Started as `python -m aotforge.compile.worker FD PARENT_PID KERNELS_ROOT`. If a compiler aborts, hangs or uses too much memory, only
this process is lost.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotforge.compile.cache_entry import encode
from aotforge.compile.pool import Frames, frame
from aotforge.plan.model import CompileJob, build
from aotforge.toolchain.allocator import begin_heap

if TYPE_CHECKING:
    from aotforge.compile.triton_compiler import Compiler

_PR_SET_PDEATHSIG = 1
_STACK_BYTES = 64 << 20
"""LLVM recurses deeply; the main thread's stack would have the size of the caller's ulimit."""
_NO_STORAGE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO}


def main(arguments: list[str]) -> int:
    """Serve jobs until the socket closes."""
    descriptor, parent, root = int(arguments[0]), int(arguments[1]), Path(arguments[2])
    die_with_parent(parent)
    gc.disable()
    os.environ.pop(
        "LD_PRELOAD", None
    )  # the allocator is loaded; programs that a compiler starts use their own
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link = socket.socket(fileno=descriptor)
    from aotforge.compile.triton_compiler import Compiler  # noqa: PLC0415 - after the guards above: loads Triton, 1 s

    compiler = Compiler(root)
    begin_heap()
    compiler.warm_up()
    threading.stack_size(_STACK_BYTES)
    link.sendall(frame({"ready": os.getpid()}))
    frames = Frames()
    while piece := link.recv(1 << 16):
        for message, _ in frames.feed(piece):
            # a failure report has the output of its own job only
            os.ftruncate(2, 0)
            os.lseek(2, 0, os.SEEK_SET)
            _serve(link, compiler, message)
    return 0


def _serve(link: socket.socket, compiler: Compiler, message: dict[str, Any]) -> None:
    """Run one job in a fork. A signal or status that ends the fork ends this process, too."""
    builder = os.getpid()
    child = os.fork()
    if child == 0:
        die_with_parent(builder)
        # sent by the fork, so that this socket has one writer at a time
        link.sendall(frame({"job_pid": os.getpid()}))
        begin_heap()
        results: list[bytes] = []
        thread = threading.Thread(target=lambda: results.append(_result(compiler, message)))
        thread.start()
        thread.join()
        if results:
            link.sendall(results[0])
        sys.stderr.flush()
        os._exit(0 if results else 1)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    elif status:
        os._exit(os.WEXITSTATUS(status))


def _result(compiler: Compiler, message: dict[str, Any]) -> bytes:
    try:
        entry = compiler.compile(build(CompileJob, message))
    except Exception as error:  # noqa: BLE001 - compilers may raise anything; the builder reports it
        sys.stderr.flush()
        report = {
            "error": "".join(traceback.format_exception_only(error)).strip(),
            # the innermost frames, without the message, which is reported first
            "trace": "".join(traceback.format_tb(error.__traceback__, limit=-6)).rstrip(),
            "storage": _storage_trouble(error),
        }
        return frame(report | _usage())
    return frame({"key": entry.summary.key, **_usage()}, encode(entry))


def _usage() -> dict[str, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"peak_kib": used.ru_maxrss, "cpu_s": used.ru_utime + used.ru_stime}


def _storage_trouble(error: BaseException) -> str:
    """The reason why the temporary folder cannot be written, or ''; LLD reports that in its own words only."""
    if isinstance(error, OSError) and error.errno in _NO_STORAGE:
        return str(error)
    try:
        with tempfile.NamedTemporaryFile() as file:
            file.write(bytes(1 << 16))
            file.flush()
    except OSError as trouble:
        return str(trouble)
    return ""


def die_with_parent(parent: int) -> None:
    """Have Linux kill this process when the process `parent` ends, in whichever way (prctl(2), PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
