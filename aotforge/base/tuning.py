"""Model of `manifests/tuning/`: settings of kernels by arch, as rows that a family's rules read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from aotforge.base.architectures import MANIFESTS, ArchName, Name, load_architectures
from aotforge.base.manifest_reader import Manifest, load
from aotforge.errors import RulesError

T = TypeVar("T")
Cell = bool | int | str | tuple[str, ...]
"""A value of a row; cells that a row lacks have the default of the family's rules."""


class Timed(Manifest):
    """A device, the versions of its driver's parts, and the times of the rules' choice by shape."""

    device: str
    versions: tuple[str, ...]
    milliseconds: tuple[float, ...]


class Found(Manifest):
    """Result of a search (`./dev tune`) for a functional: the rules' choice, and the best setting.

    `cycles` by shape, `registers` and `occupancy` (waves per SIMD) are those of the rules' choice. `setting`
    is empty where that is the best one; `ratio`: its estimate (`timed`: its time) as a share of that.
    """

    arch: ArchName
    kernel: Name
    functional: dict[Name, str]
    shapes: tuple[str, ...]
    rules: dict[Name, int]
    cycles: tuple[int, ...]
    registers: int
    occupancy: int
    setting: dict[Name, int]
    ratio: float
    tried: int
    triton: str
    date: str
    timed: Timed | None = None


class Tuning(Manifest):
    """One file: archs that share settings, where these come from, and rows by kernel (`family.kernel`); the
    first row that fits counts.

    `every_arch`: a file without archs, whose rows count where an arch's file has none of a kernel.
    `default_warp_size`: archs of this warp size without a file take it, too. `traits` are properties of the
    archs' images that the rules of a family read by name, as `family.trait`.
    """

    schema_version: Literal[1] = Field(alias="schema")
    archs: tuple[ArchName, ...] = ()
    every_arch: bool = False
    source: str
    default_warp_size: Literal[32, 64] | None = None
    traits: tuple[Name, ...] = ()
    kernels: Annotated[
        dict[Name, Annotated[tuple[dict[str, Cell], ...], Field(min_length=1)]], Field(min_length=1)
    ]
    found: tuple[Found, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TuningFiles:
    """All files, by path."""

    files: Mapping[Path, Tuning]

    def of(self, arch: str, warp_size: int) -> tuple[Path, Tuning]:
        """The file of an arch or of one that it extends. Raises RulesError without one and a default."""
        lineage = load_architectures().lineage(arch)
        files = [
            (path, table) for name in lineage for path, table in self.files.items() if name in table.archs
        ]
        files += [row for row in self.files.items() if row[1].default_warp_size == warp_size]
        if files:
            return files[0]
        raise RulesError(
            f"manifests/tuning has no settings for {arch}", hint="add it to `archs` of a file there"
        )

    def rows(self, kernel: str, arch: str, warp_size: int, make: Callable[..., T]) -> tuple[T, ...]:
        """The kernel's rows for an arch, made by `make` from their cells. Raises RulesError."""
        path, table = self.of(arch, warp_size)
        if kernel not in table.kernels:
            every = (
                (path, other)
                for path, other in self.files.items()
                if other.every_arch and kernel in other.kernels
            )
            path, table = next(every, (path, table))
        made = []
        for number, row in enumerate(table.kernels.get(kernel, ()), 1):
            try:
                made.append(make(**row))
            except TypeError as error:
                raise RulesError(f"{path}: {kernel}: row {number}: {error}", hint="correct the row") from None
        return tuple(made)


def load_tuning(folder: Path) -> TuningFiles:
    """Every file of a folder. Raises ManifestError."""
    return TuningFiles(files={path: load(path, Tuning) for path in sorted(folder.glob("*.yaml"))})


@cache
def tuning() -> TuningFiles:
    """The files of this checkout, read once per process. Raises ManifestError."""
    return load_tuning(MANIFESTS / "tuning")
