"""An image on a device as callers launch it: by the library, which finds it in an image pack."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from ctypes import POINTER, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path

from aotforge.errors import ExecutionError
from aotforge.rules import Operator, Vendor
from aotforge.targets.backends import backend_of_arch
from aotforge.targets.device_driver import Device, DeviceContext, KernelCall
from aotforge.verify.executors import DeviceImage
from aotforge.verify.invocation import Invocation, LaunchCall

_TYPES = ("ptr", "i32", "i64", "u64", "f32")
_DEVICES: Mapping[Vendor, int] = {"nvidia": 2, "amd": 10}
"""`aotforge_device` of the library's launch.h."""
_MOST = 1000
_WARM = 3  # launches before those that are timed: another process may have had the device

_BY_LIBRARY = KernelCall(function=c_void_p(), grid=(1, 1, 1), threads=0, shared_bytes=0, arguments=())
"""The library finds all of it."""


Timed = Callable[[int], tuple[float, ...]]
"""Times of that many launches in ms, each from a pair of events. Raises ExecutionError."""


class _Member(ctypes.Union):
    _fields_ = [("ptr", c_void_p), ("i32", c_int32), ("i64", c_int64), ("u64", c_uint64), ("f32", c_float)]


class _Value(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("type", c_int32), ("reserved", c_int32), ("to", _Member)]


class _LibraryContext(DeviceContext):
    """Launches by the library in the place of the driver: `call`, `together` times."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.call: Callable[[], int] = lambda: 0
        self.together = 1

    def _queue(self, call: KernelCall) -> None:
        for _ in range(self.together):
            if code := self.call():
                raise ExecutionError(
                    f"aotforge_launch: {self._driver.describe(code)}",
                    cause="no image of the pack serves the call, or the device stopped an earlier launch",
                    hint="AOTRITON_LOG=warn in the environment has the library's reason",
                )


class LibraryImage(DeviceImage):
    """Images of an operator in a folder's packs, launched by the library's `aotforge_launch`."""

    def __init__(self, device: Device, library: Path, images: Path, operator: Operator) -> None:
        """Raises ExecutionError for a library that does not load."""
        os.environ["AOTRITON_IMAGES_DIR"] = str(images)
        self.device, self._operator = str(device), operator
        self.truncates_sums = backend_of_arch(device.arch).truncates_sums
        self._context: _LibraryContext = _LibraryContext(device)
        self._kind = _DEVICES[device.vendor]
        try:
            self._launch = ctypes.CDLL(str(library)).aotforge_launch
        except (OSError, AttributeError) as error:
            raise ExecutionError(f"{library} cannot be used: {error}", hint="./dev build makes it") from error
        self._launch.argtypes = [c_char_p, POINTER(_Value), c_size_t, c_int32, c_void_p]
        self._kept = ExitStack()

    def _kernel_call(self, call: LaunchCall, place: Callable[[int], int]) -> KernelCall:
        self._context.call = self._call(call.invocation, place)
        return _BY_LIBRARY

    def timed(self, invocation: Invocation, least: float) -> Timed:
        """A call whose tensors stay on the device; as many launches between two events as take `least` ms."""
        call = self._call(invocation, self._kept.enter_context(self._on_device(invocation)))

        def times(repeat: int, together: int = 1) -> tuple[float, ...]:
            self._context.call, self._context.together = call, together
            return self._context.milliseconds(_BY_LIBRARY, repeat=_WARM + repeat)[_WARM:]

        times(0)
        single = min(times(_WARM))
        together = max(1, min(_MOST, round(least / max(single, least / _MOST)))) if least else 1
        return lambda launches: tuple(time / together for time in times(launches, together))

    def _call(self, invocation: Invocation, place: Callable[[int], int]) -> Callable[[], int]:
        """The call with addresses on the device; values that the case lacks are 0."""
        values = self._operator.values
        made = (_Value * len(values))()
        for one, declared in zip(made, values, strict=True):
            one.name, one.type = declared.name.encode(), _TYPES.index(declared.type)
            value = invocation.values.get(declared.name, 0)
            if declared.type == "ptr":
                one.to.ptr = place(int(value)) if value else None
            else:
                setattr(one.to, declared.type, float(value) if declared.type == "f32" else int(value))
        name, kind = self._operator.name.encode(), self._kind
        return lambda: int(self._launch(name, made, len(made), kind, None))
