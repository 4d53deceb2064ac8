"""What this machine is, as far as a runtime must fit it."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from aotforge.deliver.install.model import Machine


def this_machine(environment: Mapping[str, str]) -> Machine:
    """Looks at the processor, glibc, and the ROCm in ROCM_PATH or /opt/rocm."""
    return Machine(processor=platform.machine(), glibc=_glibc(), rocm=_rocm(environment))


def _glibc() -> tuple[int, int] | None:
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return None
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def _rocm(environment: Mapping[str, str]) -> str:
    for folder in (environment.get("ROCM_PATH"), "/opt/rocm"):
        if not folder:
            continue
        for name in (".info/version", ".info/version-dev"):
            try:
                text = (Path(folder) / name).read_text(encoding="ascii", errors="replace")
            except OSError:
                continue
            if match := re.match(r"(\d+)\.(\d+)", text):
                return f"{match[1]}.{match[2]}"
    return ""
