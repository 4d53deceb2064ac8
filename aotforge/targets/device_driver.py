"""Devices of this machine through their vendor's driver library by ctypes: memory, kernels, times."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, Literal

from aotforge.errors import ExecutionError
from aotforge.rules import Vendor

Argument = ctypes.c_float | ctypes.c_int32 | ctypes.c_int64 | ctypes.c_uint64
"""A kernel's argument: the driver reads it where it is."""

Call = Literal[
    "start", "count", "load", "function", "allocate", "free", "write", "read", "launch", "wait",
    "make event", "record", "wait event", "elapsed",
]  # fmt: skip


class Driver:
    """One vendor's library, loaded. Most functions differ from the other vendor's in their `names` only."""

    names: ClassVar[Mapping[Call, str]]
    vendor: ClassVar[Vendor]
    advice: ClassVar[str]
    """What shows more about an error."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library

    def call(self, name: str, *arguments: object) -> None:
        """Raises ExecutionError for a result other than success, AttributeError for a function that is not
        there."""
        if code := getattr(self.library, name)(*arguments):
            raise ExecutionError(
                f"{name}: {self.describe(code)}",
                cause="the device stopped the kernel, or the image does not fit it",
                hint=self.advice,
            )

    def integer(self, name: str, *arguments: object) -> int:
        """The integer that a function writes to its first argument. Raises ExecutionError."""
        found = c_int()
        self.call(name, byref(found), *arguments)
        return found.value

    def devices(self) -> tuple[tuple[Device, ...], str]:
        """The devices of this machine, and why there is none."""
        try:
            self.call(self.names["start"], 0)
            version = self.version()
            found = tuple(
                Device(vendor=self.vendor, number=n, name=name, arch=arch, version=version, driver=self)
                for n in range(self.integer(self.names["count"]))
                for name, arch in [self.name_and_arch(n)]
            )
        except (ExecutionError, AttributeError) as error:
            return (), str(error)
        return found, "" if found else "the driver lists no device"

    def version(self) -> str:
        """The library's version, such as CUDA 13.0. Raises ExecutionError."""
        raise NotImplementedError

    def name_and_arch(self, number: int) -> tuple[str, str]:
        """Of a device. Raises ExecutionError."""
        raise NotImplementedError

    def describe(self, code: int) -> str:
        """Name and text of an error."""
        raise NotImplementedError

    def make_current(self, number: int) -> None:
        """The device's primary context becomes this thread's."""
        raise NotImplementedError

    def emulator(self) -> str:
        """What plays the library's devices; '' for hardware."""
        return ""

    def allow_shared(self, function: c_void_p, number: int) -> None:
        """Let a kernel use all the shared memory that a workgroup may have, where its launch does not."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device as its driver lists it. `arch` is sm_90 for capability 9.0; `version` is the driver
    library's."""

    vendor: Vendor
    number: int
    name: str
    arch: str
    version: str
    driver: Driver = field(repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.name}, {self.version}"


@dataclass(frozen=True, kw_only=True)
class KernelCall:
    """A launch as a driver takes it: a workgroup has `threads` and `shared_bytes` of dynamic shared
    memory."""

    function: c_void_p
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    arguments: tuple[Argument, ...]


class DeviceContext:
    """The primary context of a device, current in this thread. After a fault every call fails: end the
    process."""

    def __init__(self, device: Device) -> None:
        self.device, self._driver = device, device.driver
        self._driver.make_current(device.number)

    def _call(self, call: Call, *arguments: object) -> None:
        self._driver.call(self._driver.names[call], *arguments)

    def function(self, image: bytes, symbol: str) -> c_void_p:
        """A kernel of an image, allowed to use all the shared memory of a workgroup. Modules are kept until
        the process ends."""
        module, function = c_void_p(), c_void_p()
        self._call("load", byref(module), c_char_p(image))
        self._call("function", byref(function), module, symbol.encode())
        self._driver.allow_shared(function, self.device.number)
        return function

    def allocate(self, size: int) -> int:
        """Address of device memory, aligned to 256 bytes."""
        address = c_uint64()
        self._call("allocate", byref(address), c_size_t(size))
        return address.value

    def free(self, address: int) -> None:
        """Return memory."""
        self._call("free", c_uint64(address))

    def write(self, address: int, source: int, size: int) -> None:
        """Copy from the host."""
        self._call("write", c_uint64(address), c_void_p(source), c_size_t(size))

    def read(self, target: int, address: int, size: int) -> None:
        """Copy to the host."""
        self._call("read", c_void_p(target), c_uint64(address), c_size_t(size))

    def launch(self, call: KernelCall) -> None:
        """Run a kernel to its end. Raises ExecutionError for a launch that is refused, and for a fault."""
        self._queue(call)
        self._call("wait")

    def milliseconds(self, call: KernelCall, *, repeat: int) -> tuple[float, ...]:
        """Times of `repeat` launches one after another, each between two events. Raises as `launch`."""
        events = [c_void_p() for _ in range(repeat + 1)]
        for event in events:
            self._call("make event", byref(event), 0)
        self._call("record", events[0], None)
        for event in events[1:]:
            self._queue(call)
            self._call("record", event, None)
        self._call("wait event", events[-1])
        times = [c_float() for _ in range(repeat)]
        for time, pair in zip(times, pairwise(events), strict=True):
            self._call("elapsed", byref(time), *pair)
        return tuple(time.value for time in times)

    def _queue(self, call: KernelCall) -> None:
        places = (c_void_p * len(call.arguments))(*map(ctypes.addressof, call.arguments))
        block = (call.threads, 1, 1)
        self._call("launch", call.function, *call.grid, *block, call.shared_bytes, None, places, None)
