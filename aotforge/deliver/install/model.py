"""Values of an installation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

DropIn = Callable[[Path, str, Path], None]
"""Puts a release into an installed PyTorch: (prefix with the unpacked release, its name, torch/lib). Raises AotforgeError."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What decides which runtime fits: processor as in `uname -m`, glibc as (2, 36) or None where there is none, the installed ROCm as
    "7.0" or empty.
    """

    processor: str
    glibc: tuple[int, int] | None
    rocm: str


@dataclass(frozen=True, kw_only=True)
class InstallRequest:
    """What to install where. `packs`: image pack of each asked-for chip. `version`: a release (0.11.2b-r1), an API level (0.11.2b, its newest
    revision) or None (the newest). `rocm`: asked for, else the machine's. One of `prefix` and `torch_lib` is given.
    """

    packs: Mapping[str, str]
    version: str | None = None
    rocm: str | None = None
    prefix: Path | None = None
    torch_lib: Path | None = None
    allow_yanked: bool = False


@dataclass(frozen=True, kw_only=True)
class Installation:
    """What is installed now. `files`: names of the archives; `fresh` is False when all of it was there already; `notes` are for the user."""

    release: str
    place: Path
    chips: tuple[str, ...]
    files: tuple[str, ...]
    source: str
    fresh: bool
    notes: tuple[str, ...]
