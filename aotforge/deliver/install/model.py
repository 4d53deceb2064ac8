"""Values of an installation, and the properties of this machine that select a runtime."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

DropIn = Callable[[Path, str, Path], object]
"""Puts a release into an installed PyTorch: (unpacked prefix, release name, torch/lib). Raises AotforgeError."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Processor as in `uname -m`, glibc as (2, 36) or None without one, the installed ROCm as "7.0" or empty."""

    processor: str
    glibc: tuple[int, int] | None
    rocm: str


@dataclass(frozen=True, kw_only=True)
class InstallRequest:
    """`packs`: image pack of each requested arch. One of `prefix` and `torch_lib` is given.

    `version`: a release (0.11.2b-r1), an API level (0.11.2b, its newest revision) or None (the newest).
    `rocm`: default is the machine's.
    """

    packs: Mapping[str, str]
    version: str | None = None
    rocm: str | None = None
    prefix: Path | None = None
    torch_lib: Path | None = None
    allow_yanked: bool = False


@dataclass(frozen=True, kw_only=True)
class Installation:
    """The installed release. `files`: names of its archives; `fresh` is False when everything was installed already."""

    release: str
    place: Path
    archs: tuple[str, ...]
    files: tuple[str, ...]
    source: str
    fresh: bool
    notes: tuple[str, ...]

    def fields(self) -> dict[str, object]:
        """JSON values."""
        return asdict(self) | {"place": str(self.place)}

    def lines(self) -> list[str]:
        """Lines of text."""
        state = "is in" if self.fresh else "was already in"
        return [f"{self.release} for {', '.join(self.archs)} {state} {self.place}"]


def this_machine(environment: Mapping[str, str]) -> Machine:
    """Reads the processor, glibc, and the ROCm in ROCM_PATH or /opt/rocm."""
    return Machine(processor=platform.machine(), glibc=_glibc(), rocm=_rocm(environment))


def _glibc() -> tuple[int, int] | None:
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return None
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def _rocm(environment: Mapping[str, str]) -> str:
    folders = [Path(folder) for folder in (environment.get("ROCM_PATH"), "/opt/rocm") if folder]
    for path in (folder / ".info" / name for folder in folders for name in ("version", "version-dev")):
        try:
            text = path.read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        if match := re.match(r"(\d+)\.(\d+)", text):
            return f"{match[1]}.{match[2]}"
    return ""
