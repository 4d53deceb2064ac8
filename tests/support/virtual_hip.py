"""The virtual HIP as a library of this process: every test gets a copy of its own, which reads the
environment afresh."""

from __future__ import annotations

import ctypes
import itertools
import shutil
from collections.abc import Sequence
from ctypes import byref, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vgpu.emulator.assembly import assemble
from vgpu.hip.build_hip import VirtualHip

Array = npt.NDArray[Any]
TO_DEVICE, TO_HOST = 1, 2
_copies = itertools.count()


def linked(text: str, arch: str, folder: Path) -> bytes:
    """The image of an assembly text, as Triton links one."""
    from triton._C.libtriton import amd

    made, image = folder / "made.o", folder / "made.hsaco"
    made.write_bytes(assemble(text, arch))
    amd.link_hsaco(str(made), str(image))
    return image.read_bytes()


class HipError(Exception):
    """A call's result that is not hipSuccess."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: {code}")
        self.code = code


class Hip:
    """`hip.hipMalloc(...)` calls and raises HipError; `hip.library` has the plain functions."""

    def __init__(self, virtual: VirtualHip, folder: Path) -> None:
        copy = folder / f"hip{next(_copies)}"
        shutil.copytree(virtual.folder, copy)
        self.library = ctypes.CDLL(str(copy / virtual.library.name))

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.library, name)

        def call(*arguments: Any) -> None:
            if code := function(*arguments):
                raise HipError(name, code)

        return call

    def upload(self, values: Array) -> c_void_p:
        """Device memory with these contents, of exactly this size."""
        at = c_void_p()
        self.hipMalloc(byref(at), c_size_t(values.nbytes))
        self.hipMemcpy(at, values.ctypes.data_as(c_void_p), c_size_t(values.nbytes), TO_DEVICE)
        return at

    def download(self, at: c_void_p, like: Array) -> Array:
        """What `like.nbytes` bytes of device memory hold."""
        out = np.empty_like(like)
        self.hipMemcpy(out.ctypes.data_as(c_void_p), at, c_size_t(out.nbytes), TO_HOST)
        return out

    def function(self, image: bytes, name: str) -> c_void_p:
        """A kernel of an image, loaded on the current device."""
        module, function = c_void_p(), c_void_p()
        self.hipModuleLoadData(byref(module), image)
        self.hipModuleGetFunction(byref(function), module, name.encode())
        return function

    def launch(
        self,
        function: c_void_p,
        grid: tuple[int, int, int],
        threads: int,
        arguments: Sequence[Any],
        *,
        stream: c_void_p | None = None,
        lds: int = 0,
    ) -> None:
        """Queue a kernel; `arguments` are ctypes values in the kernel's order."""
        pointers = (c_void_p * len(arguments))(*[ctypes.addressof(a) for a in arguments])
        self.hipModuleLaunchKernel(function, *grid, threads, 1, 1, lds, stream, pointers, None)

    def report(self) -> str:
        """The words of the last error."""
        text = ctypes.create_string_buffer(65536)
        self.library.aotforge_virtual_report(text, c_size_t(len(text)))
        return text.value.decode()

    def count(self) -> int:
        """Devices."""
        number = c_int()
        self.hipGetDeviceCount(byref(number))
        return number.value
