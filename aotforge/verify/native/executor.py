"""Runner of an image on this machine's processor: each launch twice, at other guard pages."""

from __future__ import annotations

import ctypes
import math
import signal
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

from aotforge.errors import ExecutionError, UnsupportedError
from aotforge.targets.cpu.backend import PREFIX, read_description
from aotforge.verify.invocation import ImageRunner, Invocation, LaunchCall
from aotforge.verify.native.child import run_in_child
from aotforge.verify.native.guard_pages import PAGE, GuardedCopy, Pages, Side
from aotforge.verify.verdict import ImageTask
from ttcpu.faults import Fault
from ttcpu.launch import load_library
from ttcpu.levels import host_levels

SECONDS = 20.0
"""Processor time of one launch: cases take milliseconds, so more is an endless loop."""
_RANGE = struct.Struct("<IIIIqqQQ")
"""Grid, unused; first program and last + 1; addresses of the thread's memory and of the status word."""
_CODES = {"ptr": "Q", "i32": "i4x", "i64": "q", "u64": "Q", "f32": "f4x"}
_GARBAGE, _LINE = 0xFF, 64
_SIDES: tuple[Side, ...] = ("end", "begin")


class NativeImage(ImageRunner):
    """Programs in order with guard pages behind each tensor, then backwards with guard pages before each.

    Inputs cannot be written, and the memory that a kernel needs beside its stack holds NaN.
    """

    runs = ("", ", backwards")

    def __init__(self, task: ImageTask) -> None:
        """Raises UnsupportedError when this processor lacks the level, ExecutionError, CodeObjectError."""
        if task.arch.removeprefix(PREFIX) not in host_levels():
            raise UnsupportedError(f"this processor does not execute images for {task.arch}")
        self.device = f"this processor ({task.arch})"
        self._image = read_description(task.binary)
        try:
            self._function = load_library(self._image.symbol, task.binary)[1]
        except (OSError, AttributeError) as error:
            raise ExecutionError(f"the image cannot be loaded: {error}") from error

    def run(self, call: LaunchCall) -> Counter[str]:
        """No counts. Raises ExecutionError for a fault."""
        side, launch = _SIDES[call.number], call.launch
        size = -(-self._image.scratch // _LINE) * _LINE
        with (
            _copies(call.invocation, side) as copies,
            closing(Pages(size, side)) as scratch,
            closing(Pages(PAGE, "begin")) as status,
        ):
            ctypes.memset(scratch.address, _GARBAGE, size)
            values = launch.arguments.values()
            kinds = [parameter.type for parameter in call.use.kernel.parameters]
            packed = struct.pack(
                "<" + "".join(_CODES[kind] for kind in kinds),
                *(_placed(v, copies) if k == "ptr" else v for k, v in zip(kinds, values, strict=True)),
            )
            count = math.prod(launch.grid)
            ranges = [(at, at + 1) for at in reversed(range(count))] if call.number == 1 else [(0, count)]

            def programs() -> None:
                for span in ranges:
                    self._function(
                        packed, _RANGE.pack(*launch.grid, 0, *span, scratch.address, status.address)
                    )

            if fault := run_in_child(programs, SECONDS):
                raise ExecutionError(_description(fault, copies, scratch))
            if failed := ctypes.c_int32.from_address(status.address).value:
                raise ExecutionError(f"device_assert failed: {self._image.messages[failed - 1]}")
            for copy in copies:
                copy.read_back()
        return Counter()


@contextmanager
def _copies(invocation: Invocation, side: Side) -> Iterator[list[GuardedCopy]]:
    made = []
    with ExitStack() as stack:
        for name, tensor in {**invocation.inputs, **invocation.outputs}.items():
            made.append(GuardedCopy(name, tensor, side, is_input=name in invocation.inputs))
            stack.callback(made[-1].pages.close)
        yield made


def _placed(address: float, copies: Sequence[GuardedCopy]) -> int:
    """An address in no tensor stays as it is: an access there is a fault."""
    found = (copy.place(int(address)) for copy in copies)
    return next((place for place in found if place is not None), int(address))


def _description(fault: Fault, copies: Sequence[GuardedCopy], scratch: Pages) -> str:
    access = "write" if fault.is_write else "read"
    if fault.number not in {signal.SIGSEGV, signal.SIGBUS}:
        return f"the processor raised {signal.Signals(fault.number).name}"
    for copy in copies:
        if copy.pages.has(fault.address):
            return copy.fault(fault.address, access)
    if scratch.has(fault.address):
        at = fault.address - scratch.address
        return f"access out of bounds: {access} at byte {at} of the memory of a thread"
    if fault.address < PAGE:
        return f"access out of bounds: {access} at address {fault.address:#x}, a null pointer"
    where = f"{fault.address:#x}, which is in no tensor; or more than 512 KiB of stack"
    return f"access out of bounds: {access} at {where}"
