"""Runner of an image on this machine's processor: each launch twice, at other guard pages."""

from __future__ import annotations

import ctypes
import signal
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from aotforge.errors import ExecutionError, UnsupportedError
from aotforge.targets.cpu.backend import PREFIX
from aotforge.targets.cpu.image import read_description
from aotforge.verify.invocation import Invocation, LaunchCall
from aotforge.verify.native.child import Fault, run_in_child
from aotforge.verify.native.guard_pages import PAGE, GuardedCopy, Pages, Side
from aotforge.verify.verdict import ImageTask
from ttcpu.levels import host_levels

SECONDS = 20.0
"""Processor time of one launch: cases take milliseconds, so more is an endless loop."""
_RANGE = struct.Struct("<IIIIqqQQ")
"""Grid, unused; first program and last + 1; addresses of the thread's memory and of the status word."""
_CODES = {"ptr": "Q", "i32": "i4x", "i64": "q", "u64": "Q", "f32": "f4x"}
_GARBAGE, _LINE = 0xFF, 64
_SIDES: tuple[Side, ...] = ("end", "begin")


class NativeImage:
    """Programs in order with guard pages behind each tensor, then backwards with guard pages before each.

    Inputs cannot be written, and the memory that a kernel needs beside its stack holds NaN.
    """

    runs: tuple[str, ...] = ("", ", backwards")
    cuts_sums_off = False

    def __init__(self, task: ImageTask) -> None:
        """Raises UnsupportedError when this processor lacks the level, ExecutionError, CodeObjectError."""
        if task.arch.removeprefix(PREFIX) not in host_levels():
            raise UnsupportedError(f"this processor does not execute images for {task.arch}")
        self.device = f"this processor ({task.arch})"
        self._image = read_description(task.binary)
        self._function = _load(task.binary, self._image.symbol)

    def findings(self) -> list[str]:
        """None: the machine code is not read."""
        return []

    def run(self, call: LaunchCall) -> Counter[str]:
        """No counts. Raises ExecutionError for a fault."""
        side, launch = _SIDES[call.number], call.launch
        with _copies(call.invocation, side) as copies, _thread_memory(self._image.scratch, side) as memory:
            values = launch.arguments.values()
            kinds = [parameter.type for parameter in call.use.kernel.parameters]
            packed = struct.pack(
                "<" + "".join(_CODES[kind] for kind in kinds),
                *(_placed(v, copies) if k == "ptr" else v for k, v in zip(kinds, values, strict=True)),
            )
            fault = run_in_child(
                lambda: self._programs(launch.grid, packed, memory, backwards=call.number == 1), SECONDS
            )
            if fault is not None:
                raise ExecutionError(_description(fault, copies, memory))
            self._check_status(memory)
            for copy in copies:
                copy.read_back()
        return Counter()

    def _programs(
        self, grid: tuple[int, int, int], arguments: bytes, memory: _Memory, *, backwards: bool
    ) -> None:
        count = grid[0] * grid[1] * grid[2]
        ranges = [(at, at + 1) for at in reversed(range(count))] if backwards else [(0, count)]
        for first, end in ranges:
            self._function(
                arguments, _RANGE.pack(*grid, 0, first, end, memory.scratch.address, memory.status.address)
            )

    def _check_status(self, memory: _Memory) -> None:
        status = ctypes.c_int32.from_address(memory.status.address).value
        if status:
            raise ExecutionError(f"device_assert failed: {self._image.messages[status - 1]}")


class _Memory:
    """What a thread brings: memory for the kernel, and the status word."""

    def __init__(self, scratch: Pages, status: Pages) -> None:
        self.scratch, self.status = scratch, status


@contextmanager
def _thread_memory(size: int, side: Side) -> Iterator[_Memory]:
    rounded = -(-size // _LINE) * _LINE
    memory = _Memory(Pages(rounded, side), Pages(PAGE, "begin"))
    ctypes.memset(memory.scratch.address, _GARBAGE, rounded)
    try:
        yield memory
    finally:
        memory.scratch.close()
        memory.status.close()


@contextmanager
def _copies(invocation: Invocation, side: Side) -> Iterator[list[GuardedCopy]]:
    made: list[GuardedCopy] = []
    try:
        for name, tensor in invocation.inputs.items():
            made.append(GuardedCopy(name, tensor, side, is_input=True))
        for name, tensor in invocation.outputs.items():
            made.append(GuardedCopy(name, tensor, side, is_input=False))
        yield made
    finally:
        for copy in made:
            copy.pages.close()


def _placed(address: float, copies: Sequence[GuardedCopy]) -> int:
    """An address in no tensor stays as it is: an access there is a fault."""
    found = (copy.place(int(address)) for copy in copies)
    return next((place for place in found if place is not None), int(address))


def _description(fault: Fault, copies: Sequence[GuardedCopy], memory: _Memory) -> str:
    access = "write" if fault.is_write else "read"
    if fault.number not in {signal.SIGSEGV, signal.SIGBUS}:
        return f"the processor raised {signal.Signals(fault.number).name}"
    for copy in copies:
        if copy.pages.has(fault.address):
            return copy.fault(fault.address, access)
    if memory.scratch.has(fault.address):
        at = fault.address - memory.scratch.address
        return f"access out of bounds: {access} at byte {at} of the memory of a thread"
    if fault.address < PAGE:
        return f"access out of bounds: {access} at address {fault.address:#x}, a null pointer"
    where = f"{fault.address:#x}, which is in no tensor; or more than 512 KiB of stack"
    return f"access out of bounds: {access} at {where}"


def _load(binary: bytes, symbol: str) -> ctypes._NamedFuncPointer:
    """The image's function. It stays loaded."""
    for known in ("libm.so.6", "libgcc_s.so.1"):  # of which images use functions
        ctypes.CDLL(known, mode=ctypes.RTLD_GLOBAL)
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(binary)
        file.flush()
        try:
            function = ctypes.CDLL(str(Path(file.name)))[symbol]
        except (OSError, AttributeError) as error:
            raise ExecutionError(f"the image cannot be loaded: {error}") from error
    function.argtypes, function.restype = (ctypes.c_char_p, ctypes.c_char_p), ctypes.c_int32
    return function
