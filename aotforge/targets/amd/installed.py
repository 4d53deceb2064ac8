"""The AMD GPUs of this machine, as the kernel's driver lists them; no ROCm needs to be installed."""

import re
from collections.abc import Mapping
from pathlib import Path

KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")


def installed_archs(nodes: Path = KFD_NODES) -> tuple[str, ...]:
    """The arch of each GPU, in the driver's order: `gfx90a` for gfx_target_version 90010. CPUs are nodes of
    version 0."""
    try:
        files = sorted(nodes.glob("*/properties"), key=lambda path: (len(path.parent.name), path.parent.name))
        found = [_version(path.read_text(encoding="ascii", errors="replace")) for path in files]
    except OSError:  # a container without access to it
        return ()
    return tuple(f"gfx{one // 10_000}{one // 100 % 100:x}{one % 100:x}" for one in found if one)


def _version(properties: str) -> int:
    """Major, minor and stepping as decimal digits: 120001 is 12.0.1."""
    found = re.search(r"^gfx_target_version ([0-9]+)$", properties, re.MULTILINE)
    return int(found[1]) if found else 0


def installed_rocm(environment: Mapping[str, str]) -> str:
    """The ROCm in ROCM_PATH or /opt/rocm, such as 7.0; '' without one."""
    folders = [Path(folder) for folder in (environment.get("ROCM_PATH"), "/opt/rocm") if folder]
    for path in (folder / ".info" / name for folder in folders for name in ("version", "version-dev")):
        try:
            text = path.read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        if match := re.match(r"(\d+)\.(\d+)", text):
            return f"{match[1]}.{match[2]}"
    return ""
