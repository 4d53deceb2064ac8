"""`libamdhip64.so` in Python: one device that runs a function on host memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Kernel = Callable[[list[int]], int]


def _number(value: Any) -> int:
    return int(getattr(value, "value", value) or 0)


@dataclass
class _Text:
    """A function that gives a text."""

    text: bytes
    restype: Any = None

    def __call__(self, code: int) -> bytes:
        return self.text


@dataclass
class FakeHip:
    """As `ctypes.CDLL` gives the library. `kernel` gets the arguments as words and gives the error of the
    next wait."""

    kernel: Kernel
    arch: bytes = b"gfx908:sramecc+:xnack-"
    recent: bool = True
    blocks: dict[int, Any] = field(default_factory=dict)
    faulty: int = 0
    hipGetErrorName: _Text = field(default_factory=lambda: _Text(b"hipErrorIllegalAddress"))
    hipGetErrorString: _Text = field(
        default_factory=lambda: _Text(b"an illegal memory access was encountered")
    )

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("hip") or name.startswith("hipGetDeviceProperties"):
            raise AttributeError(name)
        return lambda *arguments: self.faulty

    def hipRuntimeGetVersion(self, out: Any) -> int:
        out._obj.value = 70051831
        return 0

    def hipGetDeviceCount(self, out: Any) -> int:
        out._obj.value = 1
        return 0

    @property
    def hipGetDevicePropertiesR0600(self) -> Callable[[Any, int], int]:
        if not self.recent:
            raise AttributeError("hipGetDevicePropertiesR0600")
        return lambda out, number: self._properties(out, 1160)

    @property
    def hipGetDeviceProperties(self) -> Callable[[Any, int], int]:
        return lambda out, number: self._properties(out, 396)

    def _properties(self, out: Any, at: int) -> int:
        name = b"AMD Instinct MI100"
        ctypes.memmove(out, name, len(name))
        ctypes.memmove(ctypes.addressof(out) + at, self.arch, len(self.arch))
        return 0

    def hipMalloc(self, out: Any, size: Any) -> int:
        raw = (ctypes.c_char * (_number(size) + 256))()
        out._obj.value = -(-ctypes.addressof(raw) // 256) * 256
        self.blocks[out._obj.value] = raw
        return self.faulty

    def hipFree(self, address: Any) -> int:
        del self.blocks[_number(address)]
        return self.faulty

    def hipMemcpyHtoD(self, to: Any, source: Any, size: Any) -> int:
        ctypes.memmove(_number(to), _number(source), _number(size))
        return self.faulty

    hipMemcpyDtoH = hipMemcpyHtoD

    def hipModuleLaunchKernel(self, *arguments: Any) -> int:
        places = arguments[-2]
        self.faulty = self.kernel([ctypes.c_uint64.from_address(places[i]).value for i in range(len(places))])
        return 0

    def hipEventElapsedTime(self, out: Any, begin: Any, end: Any) -> int:
        out._obj.value = 0.25
        return self.faulty
