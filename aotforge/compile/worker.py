"""The worker process: imports Triton once and compiles jobs, one after another.

It shares only a socket with the builder. Each job runs in a fork of the warm process, in a thread of its own.
LLVM's optimiser lets addresses decide where its own order leaves a choice (seen in Triton 3.9.0: operands of
`or` chains in attention kernels). The same job compiled after different others, in one process, therefore
gives different bytes, and so do other versions of glibc. The worker runs with an allocator of this project
(aotforge/toolchain), and each fork gives LLVM a fresh heap: addresses in it depend on the job only. Python's
collector is off, because it would free LLVM's objects at times that depend on Python's version.

Started by aotforge.compile.pool as `python -m aotforge.compile.worker FD PARENT_PID KERNELS_ROOT`. If a
compiler aborts, hangs or uses too much memory, only this process is lost.
"""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotforge.base.workers import READY, Fork, die_with_parent, open_connection
from aotforge.compile.cache_entry import encode
from aotforge.compile.pool import Attempt
from aotforge.errors import CacheError
from aotforge.plan.model import CompileJob, build
from aotforge.toolchain.allocator import begin_heap

if TYPE_CHECKING:
    from aotforge.compile.triton_compiler import Compiler

_STACK_BYTES = 64 << 20
"""LLVM recurses deeply; the main thread's stack would have the size of the caller's ulimit."""
_NO_STORAGE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO}


def main(arguments: list[str]) -> None:
    """Serve jobs until the connection closes."""
    connection, own = open_connection(arguments)
    root = Path(own[0])
    gc.disable()
    # the allocator is loaded; programs that a compiler starts use their own
    os.environ.pop("LD_PRELOAD", None)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from aotforge.compile.triton_compiler import Compiler  # noqa: PLC0415 - after the guards

    compiler = Compiler(root)
    begin_heap()
    compiler.warm_up()
    threading.stack_size(_STACK_BYTES)
    connection.send(READY)
    while True:
        try:
            _serve(connection, compiler, connection.recv())
        except EOFError:
            return


def _serve(connection: Connection, compiler: Compiler, job: dict[str, Any]) -> None:
    """Run one job in a fork. A signal or status that ends the fork ends this process, too."""
    builder = os.getpid()
    child = os.fork()
    if child == 0:
        die_with_parent(builder)
        # sent by the fork, so that this connection has one writer at a time
        connection.send(Fork(pid=os.getpid()))
        begin_heap()
        results: list[Attempt | CacheError] = []
        thread = threading.Thread(target=lambda: results.append(_result(compiler, job)))
        thread.start()
        thread.join()
        if results:
            connection.send(results[0])
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


def _result(compiler: Compiler, job: dict[str, Any]) -> Attempt | CacheError:
    began = time.monotonic()
    try:
        data = encode(compiler.compile(build(CompileJob, job)))
    except Exception as error:  # noqa: BLE001 - compilers may raise anything; the builder reports it
        if trouble := _storage_trouble(error):
            return CacheError(
                f"a worker cannot write its temporary files: {trouble}",
                hint="free space on the cache's file system, or choose another cache folder",
            )
        # the innermost frames, without the message, which is reported first
        trace = "".join(traceback.format_tb(error.__traceback__, limit=-6)).rstrip()
        failure = "".join(traceback.format_exception_only(error)).strip()
        return Attempt(failure=failure, output=trace, seconds=time.monotonic() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Attempt(data=data, seconds=time.monotonic() - began, peak_bytes=peak)


def _storage_trouble(error: BaseException) -> str:
    """Why the temporary folder cannot be written, or ''; LLD reports that in words of its own."""
    if isinstance(error, OSError) and error.errno in _NO_STORAGE:
        return str(error)
    try:
        with tempfile.NamedTemporaryFile() as file:
            file.write(bytes(1 << 16))
            file.flush()
    except OSError as trouble:
        return str(trouble)
    return ""


if __name__ == "__main__":
    main(sys.argv[1:])
