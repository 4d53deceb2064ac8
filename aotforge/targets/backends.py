"""The vendors whose images this project builds."""

from collections.abc import Mapping

from aotforge.errors import UnknownNameError
from aotforge.rules import Vendor
from aotforge.targets.amd.backend import AMD
from aotforge.targets.backend import Backend
from aotforge.targets.cpu.backend import CPU, PREFIX
from aotforge.targets.nvidia.backend import NVIDIA
from ttcpu.levels import missing_flags

BACKENDS: Mapping[Vendor, Backend] = {"amd": AMD, "nvidia": NVIDIA, "cpu": CPU}
TYPICAL_TARGET = (AMD.triton_name, "gfx908", 64)
"""Arguments of Triton's GPUTarget for which a worker prepares before it knows its first job."""


def backend_of(vendor: Vendor) -> Backend:
    """The vendor's backend. Raises UnknownNameError for a vendor that has none."""
    if vendor not in BACKENDS:
        raise UnknownNameError(
            f"{vendor} is not a vendor whose images are compiled", hint=f"those are {', '.join(BACKENDS)}"
        )
    return BACKENDS[vendor]


def backend_of_arch(arch: str) -> Backend:
    """The backend of an arch's vendor, by the form of its name. Raises UnknownNameError."""
    for backend in BACKENDS.values():
        if backend.archs.fullmatch(arch):
            return backend
    raise UnknownNameError(f"{arch} is not the name of an arch", hint="gfx908, sm_90, cpu-x86-64-v3")


def is_native(arch: str) -> bool:
    """Whether processors execute an arch's images."""
    return backend_of_arch(arch).executed_by == "processor"


def unexecutable(arch: str) -> str:
    """Why this machine executes no images for an arch without a GPU; '' when it does. Raises
    UnknownNameError."""
    if is_native(arch):
        lacks = missing_flags(arch.removeprefix(PREFIX))
        return f"this processor lacks {lacks} of {arch}" if lacks else ""
    is_emulated = backend_of_arch(arch).executed_by == "virtual GPU"
    return "" if is_emulated else f"no virtual GPU executes {arch}"
