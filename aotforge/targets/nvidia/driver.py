"""CUDA's driver API through ctypes, as far as executing images needs it; no CUDA package is imported."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass

from aotforge.errors import ExecutionError

_LIBRARY = "libcuda.so.1"
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_SHARED_OPT_IN = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_STATIC_SHARED, _MAX_DYNAMIC_SHARED = 1, 8  # CU_FUNC_ATTRIBUTE_*

Argument = ctypes.c_float | ctypes.c_int32 | ctypes.c_int64 | ctypes.c_uint64
"""A kernel's argument: the driver reads it where it is."""


@dataclass(frozen=True, kw_only=True)
class CudaDevice:
    """A device as the driver lists it. `arch` is sm_90 for capability 9.0; `cuda` the driver's version of CUDA."""

    number: int
    name: str
    arch: str
    cuda: str

    def __str__(self) -> str:
        return f"{self.name}, CUDA {self.cuda}"


def cuda_devices() -> tuple[tuple[CudaDevice, ...], str]:
    """The devices of this machine, and why there is none."""
    try:
        driver = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        return (), str(error)
    try:
        _check(driver, "cuInit", driver.cuInit(0))
        count, version = c_int(), c_int()
        _check(driver, "cuDeviceGetCount", driver.cuDeviceGetCount(byref(count)))
        _check(driver, "cuDriverGetVersion", driver.cuDriverGetVersion(byref(version)))
        cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
        found = tuple(_device(driver, number, cuda) for number in range(count.value))
    except (ExecutionError, AttributeError) as error:
        return (), str(error)
    return found, "" if found else "the driver lists no device"


def find_device(arch: str) -> tuple[CudaDevice | None, str]:
    """The first device of an arch, and why there is none."""
    found, reason = cuda_devices()
    device = next((one for one in found if one.arch == arch), None)
    others = ", ".join(f"{one.name} ({one.arch})" for one in found)
    return device, "" if device else reason or f"this machine has {others}"


def _device(driver: ctypes.CDLL, number: int, cuda: str) -> CudaDevice:
    name, major, minor = ctypes.create_string_buffer(256), c_int(), c_int()
    _check(driver, "cuDeviceGetName", driver.cuDeviceGetName(name, 256, number))
    for out, attribute in ((major, _MAJOR), (minor, _MINOR)):
        _check(driver, "cuDeviceGetAttribute", driver.cuDeviceGetAttribute(byref(out), attribute, number))
    return CudaDevice(
        number=number,
        name=name.value.decode("utf-8", "replace"),
        arch=f"sm_{major.value}{minor.value}",
        cuda=cuda,
    )


def _check(driver: ctypes.CDLL, call: str, code: int) -> None:
    """Raises ExecutionError for a result other than success."""
    if code:
        name, text = c_char_p(), c_char_p()
        driver.cuGetErrorName(code, byref(name))
        driver.cuGetErrorString(code, byref(text))
        shown = f"{(name.value or b'?').decode()} ({(text.value or b'?').decode()})"
        raise ExecutionError(
            f"{call}: {shown}",
            cause="the device stopped the kernel, or the image does not fit it",
            hint="compute-sanitizer on the same call names the access",
        )


class CudaContext:
    """The primary context of a device, current in this thread. After a fault of a kernel every call fails: end the process."""

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self._driver = ctypes.CDLL(_LIBRARY)
        self._call("cuInit", 0)
        context = c_void_p()
        self._call("cuDevicePrimaryCtxRetain", byref(context), device.number)
        self._call("cuCtxSetCurrent", context)
        shared = c_int()
        self._call("cuDeviceGetAttribute", byref(shared), _SHARED_OPT_IN, device.number)
        self._shared = shared.value

    def _call(self, name: str, *arguments: object) -> None:
        _check(self._driver, name, getattr(self._driver, name)(*arguments))

    def function(self, image: bytes, symbol: str) -> c_void_p:
        """A kernel of an image, allowed to use all the shared memory of a block. Modules are kept until the process ends."""
        module, function, static = c_void_p(), c_void_p(), c_int()
        self._call("cuModuleLoadData", byref(module), c_char_p(image))
        self._call("cuModuleGetFunction", byref(function), module, symbol.encode())
        self._call("cuFuncGetAttribute", byref(static), _STATIC_SHARED, function)
        self._call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, self._shared - static.value)
        return function

    def allocate(self, size: int) -> int:
        """Address of device memory, aligned to 256 bytes."""
        address = c_uint64()
        self._call("cuMemAlloc_v2", byref(address), c_size_t(size))
        return address.value

    def free(self, address: int) -> None:
        """Return memory."""
        self._call("cuMemFree_v2", c_uint64(address))

    def write(self, address: int, source: int, size: int) -> None:
        """Copy from the host."""
        self._call("cuMemcpyHtoD_v2", c_uint64(address), c_void_p(source), c_size_t(size))

    def read(self, target: int, address: int, size: int) -> None:
        """Copy to the host."""
        self._call("cuMemcpyDtoH_v2", c_void_p(target), c_uint64(address), c_size_t(size))

    def launch(
        self,
        function: c_void_p,
        grid: tuple[int, int, int],
        threads: int,
        shared_bytes: int,
        arguments: Sequence[Argument],
    ) -> None:
        """Run a kernel to its end. Raises ExecutionError for a launch that is refused, and for a fault."""
        places = (c_void_p * len(arguments))(*(ctypes.addressof(one) for one in arguments))
        self._call("cuLaunchKernel", function, *grid, threads, 1, 1, shared_bytes, None, places, None)
        self._call("cuCtxSynchronize")
