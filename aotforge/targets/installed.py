"""The GPUs of this machine and their archs, over all vendors."""

import os
from collections.abc import Mapping
from pathlib import Path

from aotforge.errors import UnsupportedError
from aotforge.targets.amd.driver import hip_devices
from aotforge.targets.amd.installed import KFD_NODES, installed_archs, installed_rocm
from aotforge.targets.backends import backend_of_arch
from aotforge.targets.device_driver import Device
from aotforge.targets.nvidia.driver import cuda_devices

_MODULES: Mapping[str, str] = {"amd": "amdgpu", "nvidia": "nvidia"}


def installed_devices(
    environment: Mapping[str, str], library: str | None = None
) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """The devices that drivers list, AMD's first, and why a vendor has none. `library`: another HIP library
    than the installed one."""
    amd, no_hip = hip_devices(environment, library)
    nvidia, no_cuda = cuda_devices()
    return (*amd, *nvidia), tuple(reason for reason in (no_hip, no_cuda) if reason)


def find_device(arch: str) -> tuple[Device | None, str]:
    """The first device of an arch, and why there is none."""
    is_amd = backend_of_arch(arch).vendor == "amd"
    found, reason = hip_devices(os.environ) if is_amd else cuda_devices()
    device = next((one for one in found if one.arch == arch), None)
    others = ", ".join(f"{one.name} ({one.arch})" for one in found)
    return device, "" if device else reason or f"this machine has {others}"


def driver_versions(vendor: str) -> tuple[str, ...]:
    """The installed ROCm and the driver's kernel module, where they state a version: distributions' own
    modules do not."""
    rocm, name = installed_rocm(os.environ) if vendor == "amd" else "", _MODULES.get(vendor, "")
    try:
        module = (Path("/sys/module") / name / "version").read_text(encoding="utf-8").strip()
    except OSError:
        module = ""
    return tuple(text for text in (rocm and f"ROCm {rocm}", module and f"{name} {module}") if text)


def native_archs() -> tuple[str, ...]:
    """Each arch once, AMD's first. Raises UnsupportedError for a machine without a GPU."""
    cuda, reason = cuda_devices()
    found = tuple(dict.fromkeys((*installed_archs(), *(device.arch for device in cuda))))
    if not found:
        raise UnsupportedError(
            "this machine has no GPU whose arch can be read",
            cause=f"{KFD_NODES} (AMD) lists none; NVIDIA's driver: {reason}",
            hint="name the arch or product, e.g. --arch gfx908 or --arch MI100",
        )
    return found
