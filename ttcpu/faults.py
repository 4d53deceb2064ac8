"""Faults of the processor in kernels: which access, instead of a process that ends without a word."""

import atexit
import ctypes
import io
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_ACCESSES = (signal.SIGSEGV, signal.SIGBUS)
_SIGNALS = (*_ACCESSES, signal.SIGFPE, signal.SIGILL)
_SA_SIGINFO, _SA_ONSTACK = 4, 0x08000000
_CODE, _ADDRESS, _INSTRUCTION, _ERROR = 8, 16, 168, 192
"""Offsets of si_code and si_addr in siginfo_t, and of REG_RIP and REG_ERR in ucontext_t (x86-64 Linux)."""
_SI_KERNEL, _IMPOSSIBLE = 128, (1 << 64) - 1
"""si_code where the processor states no address: it has more than 48 bits."""
_WRITE = 2
_ALTERNATE = 1 << 20
_FIRST_PAGE = 4096
_FOREVER, _LONGEST = 1e6, 30


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A signal of the processor: its number, the address of the access and its kind, the instruction's
    address."""

    number: int
    address: int
    is_write: bool
    instruction: int


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


class _Symbol(ctypes.Structure):
    """`Dl_info`."""

    _fields_ = (("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("address", ctypes.c_void_p))  # fmt: skip


_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_LIBC = ctypes.CDLL(None, use_errno=True)
_kept: list[object] = []
"""What handlers need until the process ends."""


def handle_faults(handle: Callable[[Fault], None]) -> None:
    """Call `handle` for faults; when it returns, the process ends by the signal. In this thread also for the
    end of the stack."""

    def called(number: int, info: int, context: int) -> None:
        if not first.acquire(blocking=False):
            time.sleep(_FOREVER)  # until the other thread's fault has ended the process
        _LIBC.alarm(_LONGEST)  # Python may wait for a lock that this thread holds
        read, code = ctypes.c_uint64.from_address, ctypes.c_int32.from_address(info + _CODE).value
        fault = Fault(
            number=number,
            address=read(info + _ADDRESS).value if code != _SI_KERNEL else _IMPOSSIBLE,
            is_write=bool(read(context + _ERROR).value & _WRITE),
            instruction=read(context + _INSTRUCTION).value,
        )
        handle(fault)
        _default()  # the access is made again

    first = threading.Lock()
    handler, memory = _HANDLER(called), ctypes.create_string_buffer(_ALTERNATE)
    _kept.extend((handler, memory))
    stack = _Stack(address=ctypes.addressof(memory), flags=0, size=_ALTERNATE)
    _LIBC.sigaltstack(ctypes.byref(stack), None)
    action = _Action(handler=ctypes.cast(handler, ctypes.c_void_p), flags=_SA_SIGINFO | _SA_ONSTACK)
    for number in _SIGNALS:
        _LIBC.sigaction(number, ctypes.byref(action), None)


def _default() -> None:
    for number in _SIGNALS:
        _LIBC.sigaction(number, ctypes.byref(_Action()), None)


class FaultReports:
    """Reports of faults in the launches of this process on standard error."""

    def __init__(self) -> None:
        self._code: dict[str, bytes] = {}
        self._launch: tuple[str, Mapping[str, Any]] | None = None
        handle_faults(self._report)
        atexit.register(_default)  # Python calls nothing after its end

    def add(self, kernel: str, code: bytes) -> None:
        """The library of a kernel, for its lines."""
        self._code[kernel] = code

    def begin(self, kernel: str, arguments: Iterable[tuple[str, Any]]) -> None:
        """A launch begins."""
        self._launch = (kernel, dict(arguments))

    def end(self) -> None:
        """It has ended."""
        self._launch = None

    def _report(self, fault: Fault) -> None:
        if self._launch is None:
            return
        kernel, arguments = self._launch
        line = _source_line(self._code.get(kernel, b""), fault.instruction)
        text = f"error: {kernel}{line}: {_description(fault, _extents(arguments))}\n"
        hint = "Next step: compare masks, strides and grid with the sizes of the tensors\n"
        os.write(2, (text + hint * (fault.number in _ACCESSES)).encode())


def _extents(arguments: Mapping[str, Any]) -> dict[str, range]:
    """Addresses of the tensors' memory."""
    extents = {}
    for name, value in arguments.items():
        if hasattr(value, "untyped_storage"):
            storage = value.untyped_storage()
            extents[name] = range(storage.data_ptr(), storage.data_ptr() + storage.nbytes())
        elif hasattr(value, "data_ptr"):
            extents[name] = range(value.data_ptr(), value.data_ptr() + getattr(value, "nbytes", 0))
    return extents


def _description(fault: Fault, extents: Mapping[str, range]) -> str:
    if fault.number not in _ACCESSES:
        return str(signal.strsignal(fault.number))
    access = f"access out of bounds: {'write' if fault.is_write else 'read'} at"
    if fault.address < _FIRST_PAGE:
        return f"{access} {fault.address:#x}, a null pointer"
    if fault.address == _IMPOSSIBLE:
        return f"{access} an address of more than 48 bits"
    if not extents:
        return f"{access} {fault.address:#x}"

    def distance(name: str) -> int:
        return max(extents[name].start - fault.address, fault.address - extents[name].stop)

    name = min(extents, key=distance)
    at, size = fault.address - extents[name].start, len(extents[name])
    return f"{access} {fault.address:#x}; nearest is {name}, {size} bytes, of which it would be byte {at}"


def _source_line(code: bytes, instruction: int) -> str:
    """`, FILE:LINE` of an instruction, where pyelftools is installed."""
    try:
        from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - optional
    except ImportError:
        return ""
    symbol = _Symbol()
    if not code or not _LIBC.dladdr(ctypes.c_void_p(instruction), ctypes.byref(symbol)):
        return ""
    offset, elf = instruction - (symbol.base or 0), ELFFile(io.BytesIO(code))
    for unit in elf.get_dwarf_info().iter_CUs() if elf.has_dwarf_info() else ():
        program = unit.dwarfinfo.line_program_for_CU(unit)
        files, before = program["file_entry"], None
        for state in filter(None, (entry.state for entry in program.get_entries())):
            if before is not None and before.address <= offset < state.address:
                file = files[before.file - 1].name.decode()
                return f", {file}:{before.line}" if before.line else ""  # 0: of several lines
            before = state
    return ""
