"""AMD devices of this machine through HIP's runtime library, of ROCm or of a Python package."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from aotforge.errors import ExecutionError
from aotforge.targets.device_driver import Call, Device, Driver

_MAJORS = (7, 6, 5)
# hipDeviceProp_t: its size, and where gcnArchName of 256 bytes is, by the function that fills it; the name is
# at the start of both
_PROPERTIES = {"hipGetDevicePropertiesR0600": 1160, "hipGetDeviceProperties": 396}
_SIZE, _TEXT = 4096, 256
VIRTUAL = "aotforge_virtual_report"
"""A function that the virtual HIP library has, and no other."""


class HipDriver(Driver):
    """libamdhip64."""

    vendor = "amd"
    advice = "dmesg has the messages of amdgpu, with the address of a page fault"
    names: ClassVar[Mapping[Call, str]] = {
        "start": "hipInit",
        "count": "hipGetDeviceCount",
        "load": "hipModuleLoadData",
        "function": "hipModuleGetFunction",
        "allocate": "hipMalloc",
        "free": "hipFree",
        "write": "hipMemcpyHtoD",
        "read": "hipMemcpyDtoH",
        "launch": "hipModuleLaunchKernel",
        "wait": "hipDeviceSynchronize",
        "make event": "hipEventCreateWithFlags",
        "record": "hipEventRecord",
        "wait event": "hipEventSynchronize",
        "elapsed": "hipEventElapsedTime",
    }

    def __init__(self, library: ctypes.CDLL) -> None:
        super().__init__(library)
        library.hipGetErrorName.restype = library.hipGetErrorString.restype = ctypes.c_char_p

    def version(self) -> str:
        """Raises ExecutionError."""
        number = self.integer("hipRuntimeGetVersion")
        return f"HIP {number // 10_000_000}.{number // 100_000 % 100}.{number % 100_000}"

    def name_and_arch(self, number: int) -> tuple[str, str]:
        """Raises ExecutionError."""
        function = next((name for name in _PROPERTIES if hasattr(self.library, name)), "")
        if not function:
            raise ExecutionError("the HIP library has no function for the properties of a device")
        data = ctypes.create_string_buffer(_SIZE)
        self.call(function, data, number)
        texts = (data.raw[at : at + _TEXT].partition(b"\0")[0] for at in (0, _PROPERTIES[function]))
        name, arch = (text.decode("utf-8", "replace") for text in texts)
        return name, arch.partition(":")[0]

    def describe(self, code: int) -> str:
        """Name and text of an error."""
        texts = (self.library.hipGetErrorName(code), self.library.hipGetErrorString(code))
        name, text = ((one or b"?").decode("utf-8", "replace") for one in texts)
        return f"{name} ({text})"

    def make_current(self, number: int) -> None:
        """Selects the device for this thread."""
        self.call("hipInit", 0)
        self.call("hipSetDevice", number)

    def emulator(self) -> str:
        """The virtual HIP is a library of its own; AMD's emulator plays the kernel's interface to the
        installed HIP."""
        if hasattr(self.library, VIRTUAL):
            return "virtual HIP"
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
        return "rocjitsu" if "rocjitsu" in mapped else ""


def hip_libraries(environment: Mapping[str, str]) -> Iterator[str]:
    """Names and paths of HIP's library, in the order in which they are tried: the loader's, ROCm's, those of
    Python packages."""
    names = [f"libamdhip64.so.{major}" for major in _MAJORS]
    yield from names
    folders = [Path(root) / "lib" for root in (environment.get("ROCM_PATH"), "/opt/rocm") if root]
    for entry in sys.path:
        # torch's own copy, and that of AMD's packages which newer torch uses
        folders += [Path(entry) / "_rocm_sdk_core" / "lib", Path(entry) / "torch" / "lib"] if entry else []
    for folder in folders:
        yield from (str(folder / name) for name in (*names, "libamdhip64.so") if (folder / name).is_file())


def hip_devices(environment: Mapping[str, str], library: str | None = None) -> tuple[tuple[Device, ...], str]:
    """The devices of this machine by the first library that loads, or by the named one, and why there is
    none."""
    reasons = []
    for name in [library] if library else hip_libraries(environment):
        try:
            return HipDriver(ctypes.CDLL(name)).devices()
        except (OSError, AttributeError) as error:
            reasons.append(str(error))
    return (), reasons[0]
