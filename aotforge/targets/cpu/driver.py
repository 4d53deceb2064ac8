"""Triton's driver interface: the CPU as a device of PyTorch's CPU tensors."""

from __future__ import annotations

import ctypes
import os
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from aotforge.errors import UnsupportedError

from .launch import SCALARS, Loaded, run, thread_count
from .levels import host_level

ENABLE = "TRITON_CPU_BACKEND"
"""The environment variable that makes this the active driver."""


_REGISTERS = 32
"""Vector registers of AVX-512. Kernels divide by this figure, and by that of a GPU's register file, to fill a GPU."""


def load_library(name: str, code: bytes) -> tuple[ctypes.CDLL, Any]:
    """A shared library in this process, and its exported function."""
    ctypes.CDLL(
        "libm.so.6", mode=ctypes.RTLD_GLOBAL
    )  # the kernels' functions of the C library are found there
    descriptor, path = tempfile.mkstemp(suffix=".so")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(code)
        library = ctypes.CDLL(path)
    finally:
        Path(path).unlink()
    function = library[name]
    function.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    function.restype = None
    return library, function


class _Utilities:
    """Loads compiled kernels; Triton calls it by these names."""

    def load_binary(
        self, name: str, code: bytes, scratch: int, _device: int
    ) -> tuple[Any, Any, int, int, int]:
        """(module, function, registers, spills, threads at most)."""
        library, function = load_library(name, code)
        return library, (library, function, scratch), _REGISTERS, 0, 1 << 30

    def unload_module(self, _module: Any) -> None:
        """Libraries stay loaded: a launch may still run in another thread."""

    def get_device_properties(self, _device: int) -> dict[str, int]:
        """Properties that Triton's tuners read."""
        return {
            "max_shared_mem": 1 << 40,
            "multiprocessor_count": thread_count(),
            "warpSize": 1,
            "max_num_regs": _REGISTERS << 16,
        }


class _Launcher:
    """Packs the arguments of one signature and runs the grid."""

    def __init__(self, source: Any, metadata: Any) -> None:
        from triton.backends.driver import (  # noqa: PLC0415 - with another Triton, `import triton` must work all the same
            decompose_descriptor,
            expand_signature,
            wrap_handle_tensordesc_impl,
        )

        descriptors = getattr(metadata, "tensordesc_meta", None)
        self.formats = list(
            _flattened(expand_signature(source.signature.values(), descriptors, "tensordesc"))
        )
        self.codes = struct.Struct(
            "<" + "".join(self.code(type_) for type_ in self.formats if type_ != "constexpr")
        )
        self.messages = tuple(metadata.messages)
        self.launch: Callable[..., None] = wrap_handle_tensordesc_impl(
            self.start, dict(source.signature), descriptors, lambda value, *_: decompose_descriptor(value)
        )

    @staticmethod
    def code(type_: str) -> str:
        if type_.startswith("*"):
            return "Q"
        if type_ not in SCALARS:
            raise UnsupportedError(f"the CPU back end does not take scalar arguments of type {type_}")
        return SCALARS[type_]

    def __call__(
        self,
        x: int,
        y: int,
        z: int,
        stream: int,
        function: Any,
        packed: Any,
        metadata: Any,
        enter: Any,
        leave: Any,
        *arguments: Any,
    ) -> None:
        if enter is not None:
            enter(metadata)
        self.launch((x, y, z), function, arguments)
        if leave is not None:
            leave(metadata)

    def start(self, grid: tuple[int, int, int], function: Any, arguments: Sequence[Any]) -> None:
        library, code, scratch = function
        values = [
            _address(value) if type_.startswith("*") else value
            for type_, value in zip(self.formats, _flattened(arguments), strict=True)
            if type_ != "constexpr"
        ]
        kernel = Loaded(library=library, function=code, scratch=scratch, messages=self.messages)
        run(kernel, grid, self.codes.pack(*values))


def _flattened(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple | list):
            yield from _flattened(value)
        else:
            yield value


def _address(value: Any) -> int:
    """Of a tensor in this process's memory. Raises ValueError for one on another device."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    device = getattr(value, "device", None)
    if device is not None and getattr(device, "type", "cpu") != "cpu":
        raise ValueError(
            f"a tensor is on {device}; the CPU back end takes tensors on the CPU: move it with .cpu()"
        )
    return int(value.data_ptr())


class _Event:
    """A point in time, as torch.cuda.Event is one."""

    def __init__(self, **_options: Any) -> None:
        self.time = 0.0

    def record(self, *_stream: Any) -> None:
        self.time = time.perf_counter()

    def synchronize(self) -> None:
        """Launches have ended when they return."""

    def elapsed_time(self, other: _Event) -> float:
        """Milliseconds."""
        return (other.time - self.time) * 1e3


class _DeviceInterface:
    """The part of torch.cuda that triton.testing uses."""

    Event = _Event

    @staticmethod
    def synchronize(*_device: Any) -> None:
        """Launches have ended when they return."""

    @staticmethod
    def current_device() -> int:
        return 0


class CPUDriver(DriverBase):  # type: ignore[misc] # Triton has no types
    """Active only where TRITON_CPU_BACKEND=1, so that owners of GPUs notice nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.utils = _Utilities()
        self.launcher_cls = _Launcher

    @classmethod
    def is_active(cls) -> bool:
        """Whether the environment enables it."""
        return os.environ.get(ENABLE, "") not in {"", "0"}

    def map_python_to_cpp_type(self, ty: str) -> str:
        """C's name of an argument's type."""
        return "void*" if ty.startswith("*") else {"fp32": "float", "fp64": "double"}.get(ty, f"{ty}_t")

    def get_current_target(self) -> GPUTarget:
        """This processor."""
        return GPUTarget("cpu", host_level(), 1)

    def get_active_torch_device(self) -> Any:
        """torch.device("cpu")."""
        import torch  # noqa: PLC0415 - the back end works without PyTorch

        if not hasattr(torch.cpu, "set_stream"):
            # torch.cpu has streams and no function to choose one, which scripts for any device call
            torch.cpu.set_stream = lambda _stream: None
        return torch.device("cpu")

    def get_device_interface(self) -> type[_DeviceInterface]:
        """For triton.testing."""
        return _DeviceInterface

    def get_current_device(self) -> int:
        """There is one."""
        return 0

    def set_current_device(self, _device: int) -> None:
        """There is one."""

    def get_current_stream(self, _device: int) -> int:
        """Launches are synchronous."""
        return 0

    def get_benchmarker(self) -> Any:
        """Triton's own."""
        from triton.testing import do_bench  # noqa: PLC0415 - imports this module's caller

        return do_bench

    def get_empty_cache_for_benchmark(self) -> Any:
        """Memory larger than the processor's caches."""
        import torch  # noqa: PLC0415 - the back end works without PyTorch

        return torch.empty(64 << 20, dtype=torch.int8)

    def clear_cache(self, cache: Any) -> None:
        """Overwrite that memory."""
        cache.zero_()


if CPUDriver.is_active():
    # with a GPU there is a second active driver, which Triton refuses to choose between
    os.environ.setdefault("TRITON_DEFAULT_BACKEND", "cpu")
