"""The archs of this machine's GPUs."""

from aotforge.errors import UnsupportedError
from aotforge.targets.amd.installed import KFD_NODES, installed_archs
from aotforge.targets.nvidia.driver import cuda_devices


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
