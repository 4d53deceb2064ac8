"""The operator library by ctypes, memory of a device by its driver, and strided tensors of numbers there."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int32, c_int64, c_uint64, c_void_p
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from aotforge.targets.amd.driver import hip_devices
from aotforge.targets.device_driver import DeviceContext
from aotforge.targets.nvidia.driver import cuda_devices
from aotforge.verify.interpreter.number_formats import STORAGE, Array, DType, decode, encode

CPU, CUDA, ROCM = 1, 2, 10
CODES = {"i": 0, "u": 1, "fp": 2, "bf": 4}
_GUARD = 64
"""Elements before and behind a tensor's memory that no call may change."""


class CTensor(ctypes.Structure):
    """`aotforge_tensor`, which has DLTensor's layout."""

    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


def integers(values: Sequence[int]) -> Any:
    """A C array of int64."""
    return (c_int64 * len(values))(*values)


class OnDevice:
    """Memory of a vendor's first device by the project's driver. Raises OSError without one."""

    def __init__(self, device_type: int) -> None:
        devices, reason = cuda_devices() if device_type == CUDA else hip_devices(os.environ)
        if not devices:
            raise OSError(reason)
        self.device_type, self._context = device_type, DeviceContext(devices[0])

    def upload(self, data: bytes) -> int:
        """Address of new memory with these bytes."""
        address = self._context.allocate(max(len(data), 1))
        kept = ctypes.create_string_buffer(data, max(len(data), 1))
        self._context.write(address, ctypes.addressof(kept), len(data))
        return address

    def download(self, address: int, size: int) -> bytes:
        """Bytes of memory, after all work."""
        out = ctypes.create_string_buffer(size)
        self._context.read(ctypes.addressof(out), address, size)
        return out.raw

    def free(self, address: int) -> None:
        """Releases memory."""
        self._context.free(address)


class Host:
    """Memory of this process, which the processor's kernels take."""

    device_type = CPU

    def __init__(self) -> None:
        self._memory: dict[int, Any] = {}

    def upload(self, data: bytes) -> int:
        """Address of new memory with these bytes."""
        memory = ctypes.create_string_buffer(data, max(len(data), 1))
        address = ctypes.addressof(memory)
        self._memory[address] = memory
        return address

    def download(self, address: int, size: int) -> bytes:
        """Bytes of memory, after all work."""
        return ctypes.string_at(address, size)

    def free(self, address: int) -> None:
        """Releases memory."""
        del self._memory[address]


Driver = Host | OnDevice
DRIVERS: dict[str, Callable[[], Driver]] = {
    "cpu": Host,
    "cuda": partial(OnDevice, CUDA),
    "rocm": partial(OnDevice, ROCM),
}
"""By the names of devices."""


@dataclass(kw_only=True)
class DeviceTensor:
    """A tensor of given strides in elements on the device, within memory of random bytes; `skew` moves its
    first element.

    `values` are as large as the memory that the strides spans, so broadcast elements are stored once.
    """

    driver: Driver
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    seed: int
    skew: int = 0
    storage: Array = field(init=False)
    address: int = field(init=False)

    def __post_init__(self) -> None:
        spans = [(size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)]
        self.low = sum(min(step, 0) for step in spans) if all(self.shape) else 0
        extent = sum(map(abs, spans)) + 1 if all(self.shape) else 0
        count = extent + 2 * _GUARD + self.skew
        rng = np.random.default_rng(self.seed)
        if self.dtype[0] in "iu":
            limits = np.iinfo(STORAGE[self.dtype])
            self.storage = rng.integers(
                limits.min, limits.max, count, dtype=STORAGE[self.dtype], endpoint=True
            )
        else:
            self.storage = encode(rng.standard_normal(count), self.dtype)
        self.address = self.driver.upload(self.storage.tobytes())

    def view(self, storage: Array) -> Array:
        """The tensor's elements in a copy of its memory."""
        itemsize = storage.itemsize
        return np.lib.stride_tricks.as_strided(
            storage[_GUARD + self.skew - self.low :], self.shape, [step * itemsize for step in self.strides]
        )

    def numbers(self) -> Array:
        """Its elements before any call: float64 of floats."""
        return decode(self.view(self.storage).copy(), self.dtype)

    def c_tensor(self) -> CTensor:
        """The C structure; it keeps shape and strides alive."""
        letters = self.dtype.rstrip("0123456789")
        itemsize = STORAGE[self.dtype].itemsize
        return CTensor(
            data=self.address,
            device_type=self.driver.device_type,
            ndim=len(self.shape),
            code=CODES[letters],
            bits=8 * itemsize,
            lanes=1,
            shape=integers(self.shape),
            strides=integers(self.strides),
            byte_offset=(_GUARD + self.skew - self.low) * itemsize,
        )

    def after(self) -> Array:
        """Its memory now."""
        data = self.driver.download(self.address, self.storage.nbytes)
        return np.frombuffer(data, dtype=self.storage.dtype)


class Exported:
    """A tensor that exports itself by DLPack."""

    class _Managed(ctypes.Structure):
        _fields_ = (("tensor", CTensor), ("context", c_void_p), ("deleter", c_void_p))

    def __init__(self, tensor: DeviceTensor) -> None:
        self._c_tensor = tensor.c_tensor()
        self._managed = self._Managed(tensor=self._c_tensor)

    def __dlpack__(self, **_: object) -> object:
        """A capsule of the structure, which this object keeps."""
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [c_void_p, ctypes.c_char_p, c_void_p]
        return new(ctypes.addressof(self._managed), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's device type, and device 0."""
        return self._c_tensor.device_type, 0


class OperatorLibrary:
    """libaotforge_ops.so."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.aotforge_ops_error.restype = c_char_p
        self.library.aotforge_add.argtypes = [
            POINTER(CTensor), POINTER(CTensor), c_double, POINTER(CTensor), c_void_p
        ]  # fmt: skip
        self.library.aotforge_add.restype = c_int

    def call(
        self, name: str, *arguments: CTensor | float | int | c_int | None, stream: int = 0
    ) -> tuple[int, str]:
        """Result and error text of a function; a float is a number of C, an int the number of an axis, a
        c_int an option."""
        given = [
            c_double(value) if isinstance(value, float) else c_int64(value) if isinstance(value, int)
            else value if isinstance(value, c_int) else value and byref(value)
            for value in arguments
        ]  # fmt: skip
        code = getattr(self.library, f"aotforge_{name}")(*given, c_void_p(stream or None))
        return code, self.library.aotforge_ops_error().decode()

    def add(
        self, left: CTensor | None, right: CTensor | None, alpha: float, out: CTensor | None, stream: int = 0
    ) -> tuple[int, str]:
        """Result and error text of aotforge_add."""
        return self.call("add", left, right, float(alpha), out, stream=stream)


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor whose last axis is the innermost."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
