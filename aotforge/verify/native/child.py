"""Forked child with little stack and limited time, whose faults are reported with their address."""

from __future__ import annotations

import mmap
import os
import resource
import signal
import struct
import threading
from collections.abc import Callable

from aotforge.errors import ExecutionError
from ttcpu.faults import Fault, handle_faults

_STACK = 512 << 10
"""Callers' threads may have no more, so larger buffers must be memory beside the stack."""
_REPORT = struct.Struct("<iiQQ")
"""Signal; 1 for a write; address; instruction."""
_ENDED, _FAULT = 0, 70


def run_in_child(work: Callable[[], None], seconds: float) -> Fault | None:
    """Runs `work` in a fork that shares memory; its fault, or None. Raises ExecutionError for other ends."""
    with mmap.mmap(-1, mmap.PAGESIZE) as report:
        child = os.fork()
        if child == 0:
            _serve(work, seconds, report)
        status = os.waitpid(child, 0)[1]
        if os.waitstatus_to_exitcode(status) == _FAULT:
            number, is_write, address, instruction = _REPORT.unpack_from(report)
            return Fault(number=number, address=address, is_write=bool(is_write), instruction=instruction)
    if os.waitstatus_to_exitcode(status) == -signal.SIGPROF:
        raise ExecutionError(f"no end after {seconds:g} s of processor time: an endless loop?")
    if status != 0:
        code = os.waitstatus_to_exitcode(status)
        raise ExecutionError(f"the process that executed the launch ended with status {code}")
    return None


def _serve(work: Callable[[], None], seconds: float, report: mmap.mmap) -> None:
    """In the child; never returns."""
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        threading.stack_size(_STACK)
        done: list[bool] = []

        def body() -> None:
            _report_faults(report)
            work()
            done.append(True)

        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        os._exit(_ENDED if done else 1)
    finally:
        os._exit(1)


def _report_faults(report: mmap.mmap) -> None:
    """Faults of this thread are written to `report`, and end the process."""

    def write(fault: Fault) -> None:
        _REPORT.pack_into(report, 0, fault.number, int(fault.is_write), fault.address, fault.instruction)
        os._exit(_FAULT)

    handle_faults(write)
