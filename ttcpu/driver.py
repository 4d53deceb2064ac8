"""Triton's driver interface: the CPU as a device of PyTorch's CPU tensors."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from .errors import UnsupportedError
from .launch import (
    REQUEST,
    SCALARS,
    address_of,
    checked_grid,
    ends_well,
    launcher,
    load_library,
    report,
    thread_count,
)
from .levels import host_level

if TYPE_CHECKING:
    from .faults import FaultReports

ENABLE = "TRITON_CPU_BACKEND"
"""The environment variable that makes this the active driver."""


reports: FaultReports | None = None
"""Of the process' launches; a program sets it that owns the process, since it takes signals."""
_REGISTERS = 32
"""Vector registers of AVX-512: kernels divide a GPU's register file by this figure."""


class _Utilities:
    """Loads compiled kernels; Triton calls it by these names."""

    def load_binary(
        self, name: str, code: bytes, scratch: int, _device: int
    ) -> tuple[Any, Any, int, int, int]:
        """(module, function, registers, spills, threads at most)."""
        if reports is not None:
            reports.add(name, code)
        library, function = load_library(name, code)
        return library, (address_of(function), scratch), _REGISTERS, 0, 1 << 30

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
        from triton.backends.driver import (  # noqa: PLC0415 - another Triton may lack it
            decompose_descriptor,
            expand_signature,
            wrap_handle_tensordesc_impl,
        )

        descriptors = getattr(metadata, "tensordesc_meta", None)
        nested = expand_signature(source.signature.values(), descriptors, "tensordesc")
        self.flat = not any(isinstance(type_, tuple) for type_ in nested)
        self.nulls: list[int] = []
        self.packed = _packer(list(_flattened(nested)), self.address)
        self.name, self.names = metadata.name, list(source.signature)
        self.messages = tuple(metadata.messages)
        self.start = launcher()
        self.launch: Callable[..., None] = wrap_handle_tensordesc_impl(
            self.run, dict(source.signature), descriptors, lambda value, *_: decompose_descriptor(value)
        )
        self.has_descriptors = self.launch != self.run

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

    def run(self, grid: tuple[int, int, int], function: tuple[int, int], arguments: Sequence[Any]) -> None:
        values = arguments if self.flat and not self.has_descriptors else tuple(_flattened(arguments))
        request = self.packed(checked_grid(grid), thread_count(), function, values)
        if self.nulls:
            self.check_nulls(request)
        if reports is not None:
            names = self.names if len(self.names) == len(values) else map("argument {}".format, count())
            reports.begin(self.name, zip(names, values, strict=False))
        status = self.start(request, None)
        if reports is not None:
            reports.end()
        if status:
            report(status, self.messages, function[1])

    def address(self, value: Any, number: int) -> int:
        """Of a pointer argument; null ones are noted."""
        pointer = _address(value)
        if not pointer:
            self.nulls.append(number)
        return pointer

    def check_nulls(self, request: bytes) -> None:
        """Null is fine where masks keep every program away from it. Raises ValueError where they do not."""
        nulls = sorted(set(self.nulls))
        self.nulls.clear()
        if not ends_well(request):
            names = ", ".join(self.names[n] if self.flat else f"argument {n}" for n in nulls)
            raise ValueError(f"{names}: a null pointer that the kernel uses, as an empty tensor has")


def _packer(formats: Sequence[str], address: Callable[[Any, int], int]) -> Callable[..., bytes]:
    """A function that makes a request of a launch; generated, since every launch runs it."""
    items = [
        f"address(a[{number}], {number})" if type_.startswith("*") else f"a[{number}]"
        for number, type_ in enumerate(formats)
        if type_ != "constexpr"
    ]
    codes = [_code(type_) for type_ in formats if type_ != "constexpr"]
    names = {"pack": struct.Struct(REQUEST.format + "".join(codes)).pack, "address": address}
    text = f"lambda grid, threads, function, a: pack(*grid, threads, *function, {', '.join(items)})"
    made: Callable[..., bytes] = eval(text, names)  # the text is made of numbers above
    return made


def _code(type_: str) -> str:
    if type_.startswith("*"):
        return "Q"
    if type_ not in SCALARS:
        raise UnsupportedError(f"the CPU back end does not take scalar arguments of type {type_}")
    return SCALARS[type_]


def _flattened(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple | list):
            yield from _flattened(value)
        else:
            yield value


def _address(value: Any) -> int:
    """Of a tensor in this process's memory. Raises ValueError for one on another device."""
    if getattr(value, "is_cpu", False):
        return int(value.data_ptr())
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
        from .cache import use_checked_cache  # noqa: PLC0415 - Triton's runtime imports this module

        use_checked_cache()
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
