"""NVIDIA devices of this machine through CUDA's driver API; no CUDA package is imported."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import byref, c_char_p, c_int, c_void_p
from typing import ClassVar

from aotforge.targets.device_driver import Call, Device, Driver

_LIBRARY = "libcuda.so.1"
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_SHARED_OPT_IN = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_STATIC_SHARED, _MAX_DYNAMIC_SHARED = 1, 8  # CU_FUNC_ATTRIBUTE_*


class CudaDriver(Driver):
    """libcuda."""

    vendor = "nvidia"
    advice = "compute-sanitizer on the same call names the access"
    names: ClassVar[Mapping[Call, str]] = {
        "start": "cuInit",
        "count": "cuDeviceGetCount",
        "load": "cuModuleLoadData",
        "function": "cuModuleGetFunction",
        "allocate": "cuMemAlloc_v2",
        "free": "cuMemFree_v2",
        "write": "cuMemcpyHtoD_v2",
        "read": "cuMemcpyDtoH_v2",
        "launch": "cuLaunchKernel",
        "wait": "cuCtxSynchronize",
        "make event": "cuEventCreate",
        "record": "cuEventRecord",
        "wait event": "cuEventSynchronize",
        "elapsed": "cuEventElapsedTime",
    }

    def version(self) -> str:
        """Raises ExecutionError."""
        number = self.integer("cuDriverGetVersion")
        return f"CUDA {number // 1000}.{number % 1000 // 10}"

    def name_and_arch(self, number: int) -> tuple[str, str]:
        """Raises ExecutionError."""
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, 256, number)
        major, minor = (self.integer("cuDeviceGetAttribute", one, number) for one in (_MAJOR, _MINOR))
        return name.value.decode("utf-8", "replace"), f"sm_{major}{minor}"

    def describe(self, code: int) -> str:
        """Name and text of an error."""
        name, text = c_char_p(), c_char_p()
        self.library.cuGetErrorName(code, byref(name))
        self.library.cuGetErrorString(code, byref(text))
        return f"{(name.value or b'?').decode()} ({(text.value or b'?').decode()})"

    def make_current(self, number: int) -> None:
        """Retains the primary context for the rest of the process."""
        context = c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", byref(context), number)
        self.call("cuCtxSetCurrent", context)

    def allow_shared(self, function: c_void_p, number: int) -> None:
        """The opt-in limit, less what the kernel has statically."""
        shared, static = c_int(), c_int()
        self.call("cuDeviceGetAttribute", byref(shared), _SHARED_OPT_IN, number)
        self.call("cuFuncGetAttribute", byref(static), _STATIC_SHARED, function)
        self.call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, shared.value - static.value)


def cuda_devices() -> tuple[tuple[Device, ...], str]:
    """The devices of this machine, and why there is none."""
    try:
        driver = CudaDriver(ctypes.CDLL(_LIBRARY))
    except OSError as error:
        return (), str(error)
    return driver.devices()
