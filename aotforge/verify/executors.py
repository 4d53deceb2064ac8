"""Runners of one image: the virtual GPU, this machine's processor, or a device of it."""

from __future__ import annotations

import ctypes
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from aotforge.base.architectures import MANIFESTS
from aotforge.base.hazards import load_hazards
from aotforge.errors import ExecutionError
from aotforge.targets.backend import SCRATCH_POINTERS
from aotforge.targets.backends import backend_of_arch
from aotforge.targets.device_driver import Argument, Device, DeviceContext, KernelCall
from aotforge.targets.installed import find_device
from aotforge.verify.hazards import find_hazards
from aotforge.verify.invocation import ImageRunner, Invocation, LaunchCall
from aotforge.verify.native.executor import NativeImage
from aotforge.verify.verdict import ImageTask
from vgpu.emulator.program import Emulator, LaunchRequest

_LIMIT = 20_000_000  # wave-instructions of a workgroup: cases are small, so more is an endless loop
_SEED = 0x5EED
_WARM = 3  # launches before those that are timed: the first ones load code and raise the clock
_ALIGNMENT = 256  # of device memory: what is aligned on the host is as aligned there
_INTEGERS: Mapping[str, type[ctypes.c_int32 | ctypes.c_int64 | ctypes.c_uint64]] = {
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "u64": ctypes.c_uint64,
}


def load_runner(task: ImageTask, folder: Path) -> ImageRunner:
    """The runner of an image's arch. Raises AotforgeError for an image that cannot be loaded."""
    executed_by = backend_of_arch(task.arch).executed_by
    if executed_by == "processor":
        return NativeImage(task)
    return DeviceImage(task) if executed_by == "device" else EmulatedImage(task, folder)


class EmulatedImage(ImageRunner):
    """An image on the virtual GPU: waves one after another, and in one seeded random order."""

    runs = ("", ", random schedule")

    def __init__(self, task: ImageTask, cache: Path) -> None:
        self._task, self._program = task, Emulator(task.arch, cache=cache).load(task.binary, task.asm)

    def findings(self) -> list[str]:
        """Hazards of the arch in the machine code."""
        return list(find_hazards(self._program.listing, self._program.target, load_hazards(MANIFESTS)))

    def run(self, call: LaunchCall) -> Counter[str]:
        """Wave-instructions by name."""
        launch, source = call.launch, self._task.source
        for tensor in call.invocation.inputs.values():
            tensor.storage.flags.writeable = False  # a store to an input is a fault at once
        report = self._program.launch(LaunchRequest(
            grid=launch.grid, arguments=tuple(launch.arguments.values()), memory=call.invocation.memory(),
            lds_bytes=self._task.resources.dynamic_shared_bytes, schedule=_SEED if call.number else None,
            seed=call.seed, limit=_LIMIT, jobs=1, checks=True, source=source, on_print=call.on_print,
        ))  # fmt: skip
        return report.counts


class DeviceImage(ImageRunner):
    """An image on a GPU of this machine, by its driver. Each case is launched twice: races can show.

    Memory outside of tensors and their canaries is not checked.
    """

    runs = ("", ", second launch")

    def __init__(self, task: ImageTask, device: Device | None = None) -> None:
        """On `device`, by default the first one of the arch. Raises ExecutionError, CodeObjectError."""
        found, reason = (device, "") if device else find_device(task.arch)
        if found is None:
            raise ExecutionError(f"no device of {task.arch}: {reason}")
        backend = backend_of_arch(task.arch)
        self.device, self.truncates_sums = str(found), backend.truncates_sums
        self._resources = task.resources
        self._context = DeviceContext(device) if device else _context(found)
        self._function = self._context.function(task.binary, backend.read(task.binary).symbol)

    def run(self, call: LaunchCall) -> Counter[str]:
        """No counts. Raises ExecutionError for a fault, and when an input was changed."""
        self._checked(call, self._context.launch)
        return Counter()

    def milliseconds(self, call: LaunchCall, repeat: int) -> float:
        """The median time of `repeat` launches. Raises ExecutionError."""
        times: list[float] = []
        self._checked(
            call, lambda kernel: times.extend(self._context.milliseconds(kernel, repeat=repeat + _WARM))
        )
        return statistics.median(times[_WARM:])

    def _checked(self, call: LaunchCall, execute: Callable[[KernelCall], None]) -> None:
        """Executes the call on tensors on the device. Raises ExecutionError, also for a changed input."""
        with self._on_device(call.invocation) as place:
            execute(self._kernel_call(call, place))
        changed = [name for name, tensor in call.invocation.inputs.items() if not tensor.unchanged()]
        if changed:
            raise ExecutionError(f"the input {changed[0]} was written")

    def _kernel_call(self, call: LaunchCall, place: Callable[[int], int]) -> KernelCall:
        """As the driver takes it. `place`: addresses on the device by addresses here."""
        values = zip(call.use.kernel.parameters, call.launch.arguments.values(), strict=True)
        arguments = [_passed(parameter.type, value, place) for parameter, value in values]
        return KernelCall(
            function=self._function,
            grid=call.launch.grid,
            threads=self._resources.threads,
            shared_bytes=self._resources.dynamic_shared_bytes,
            arguments=(*arguments, *[ctypes.c_uint64(0)] * SCRATCH_POINTERS),
        )

    @contextmanager
    def _on_device(self, invocation: Invocation) -> Iterator[Callable[[int], int]]:
        """Copies tensors there, and back without errors; yields places there, of other addresses the same."""
        spans: list[tuple[int, int, int]] = []

        def place(address: int) -> int:
            there = (to + address - low for low, high, to in spans if low <= address <= high)
            return next(there, address)

        with ExitStack() as stack:
            for _, low, high, _ in invocation.memory().spans():
                block = self._context.allocate(high - low + _ALIGNMENT)
                stack.callback(self._free, block)
                spans.append((low, high, block + low % _ALIGNMENT))
                self._context.write(spans[-1][2], low, high - low)
            yield place
            for low, high, to in spans:
                self._context.read(low, to, high - low)

    def _free(self, block: int) -> None:
        with suppress(ExecutionError):  # after a fault the context frees nothing
            self._context.free(block)


def _passed(kind: str, value: float, place: Callable[[int], int]) -> Argument:
    """An argument as the driver reads it; pointers are addresses on the device."""
    if kind == "f32":
        return ctypes.c_float(value)
    return ctypes.c_uint64(place(int(value))) if kind == "ptr" else _INTEGERS[kind](int(value))


@cache
def _context(device: Device) -> DeviceContext:
    """One context per device and process."""
    return DeviceContext(device)
