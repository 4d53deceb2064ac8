"""Forked child with little stack and limited time, whose faults are reported with their address."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass

from aotforge.errors import ExecutionError

_STACK = 512 << 10
"""Callers' threads may have no more, so larger buffers must be memory beside the stack."""
_SIGNALS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
_REPORT = struct.Struct("<iiQ")
"""Signal; 1 for a write; address."""
_SA_SIGINFO, _SA_ONSTACK = 4, 0x08000000
_ADDRESS, _ERROR = 16, 192
"""Offsets of si_addr in siginfo_t, and of REG_ERR in ucontext_t (x86-64 Linux)."""
_WRITE = 2
_ALTERNATE = 1 << 20
_ENDED, _FAULT = 0, 70


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A signal of the processor: its number, the address of the access and its kind."""

    number: int
    address: int
    is_write: bool


class _Action(ctypes.Structure):
    """`struct sigaction` of the C library."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _Stack(ctypes.Structure):
    """`stack_t`."""

    _fields_ = (("address", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_LIBC = ctypes.CDLL(None, use_errno=True)


def run_in_child(work: Callable[[], None], seconds: float) -> Fault | None:
    """Runs `work` in a fork that shares memory; its fault, or None. Raises ExecutionError for other ends."""
    with mmap.mmap(-1, mmap.PAGESIZE) as report:
        child = os.fork()
        if child == 0:
            _serve(work, seconds, report)
        status = os.waitpid(child, 0)[1]
        if os.waitstatus_to_exitcode(status) == _FAULT:
            number, is_write, address = _REPORT.unpack_from(report)
            return Fault(number=number, address=address, is_write=bool(is_write))
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


_kept: list[object] = []
"""What the handler needs until the child ends."""


def _report_faults(report: mmap.mmap) -> None:
    """Faults of this thread are written to `report`, and end the process."""

    def handle(number: int, info: int, context: int) -> None:
        address = ctypes.c_uint64.from_address(info + _ADDRESS).value
        error = ctypes.c_uint64.from_address(context + _ERROR).value
        _REPORT.pack_into(report, 0, number, int(bool(error & _WRITE)), address)
        os._exit(_FAULT)

    handler, memory = _HANDLER(handle), ctypes.create_string_buffer(_ALTERNATE)
    _kept.extend((handler, memory))
    stack = _Stack(address=ctypes.addressof(memory), flags=0, size=_ALTERNATE)
    _LIBC.sigaltstack(ctypes.byref(stack), None)  # the fault may be the end of the stack
    action = _Action(handler=ctypes.cast(handler, ctypes.c_void_p), flags=_SA_SIGINFO | _SA_ONSTACK)
    for number in _SIGNALS:
        _LIBC.sigaction(number, ctypes.byref(action), None)
