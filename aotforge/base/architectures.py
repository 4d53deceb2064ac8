"""Models of `manifests/architectures.yaml` and `manifests/profiles.yaml`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from aotforge.base.manifest_reader import Manifest, load
from aotforge.errors import UnknownNameError, suggest
from aotforge.rules import Target

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
Positive = Annotated[int, Field(ge=1)]
ArchName = Annotated[str, Field(pattern=r"^gfx[0-9a-f]{3,5}$")]
PackName = Annotated[str, Field(pattern=r"^amd-gfx[0-9a-fx]{3,5}$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class EmulatorProperties(Manifest):
    """Properties that the virtual GPU must know of an arch beyond its instructions and counts; the head of the manifest explains each."""

    keeps_high_half: bool
    vgpr_unit: Positive
    packed_ids: bool
    ids_in_ttmp: bool
    scratch_offset: bool


class DeviceProperties(Manifest):
    """One product of an arch, for virtual devices and cost estimates; the manifest's head describes the fields."""

    product: str
    compute_units: Positive
    memory_gib: Positive
    features: str = ""


class Architecture(Manifest):
    """One arch. Registers per lane and SIMD, `lds_bytes` per workgroup, `lds_per_cu` per compute unit (bytes).

    Of RDNA "cu" is the workgroup processor (two CUs), as their images are compiled for it.
    `sgprs` is the scalar register file per SIMD that waves share; 0 where it does not bound the number of waves;
    `sgprs_reserved` are each wave's for the trap handler.
    """

    product_line: str
    wavefront: Literal[32, 64]
    matrix: Literal["MFMA", "WMMA", "none"]
    accumulators: Literal["split", "unified", "none"]
    pack: PackName
    lds_bytes: Positive
    lds_per_cu: Positive
    lds_granule: Positive
    vgprs: Positive
    vgpr_granule: Positive
    sgprs: Annotated[int, Field(ge=0)]
    sgprs_reserved: Annotated[int, Field(ge=0)]
    sgpr_granule: Positive
    max_waves_per_simd: Positive
    simds_per_cu: Positive
    max_workgroups_per_cu: Positive
    emulator: EmulatorProperties | None = None
    device: DeviceProperties

    def target(self, arch: str) -> Target:
        """The properties that rules may use."""
        return Target(arch=arch, wavefront=self.wavefront, matrix=self.matrix, lds_bytes=self.lds_bytes)


class Architectures(Manifest):
    """`architectures.yaml`: every arch that `--arch` takes."""

    schema_version: Literal[1] = Field(alias="schema")
    architectures: dict[ArchName, Architecture]

    def find(self, arch: str) -> Architecture:
        """Raises UnknownNameError."""
        return self.architectures[check_archs([arch], self.architectures)[0]]


def parse_archs(text: str, known: Collection[str]) -> tuple[str, ...]:
    """The names of an `--arch` flag, joined by commas, in its order. Raises UnknownNameError."""
    return check_archs([name.strip() for name in text.split(",")], known)


def check_archs(archs: Iterable[str], known: Collection[str]) -> tuple[str, ...]:
    """`archs`, each of them known and named once. Raises UnknownNameError."""
    names = tuple(archs)
    for number, name in enumerate(names):
        if not name:
            raise UnknownNameError(f"an arch without a name in {','.join(names)!r}", hint=_known_archs(known))
        if name not in known:
            # a name such as gfx906 is another real arch: the nearest known one would be the wrong GPU
            hint = _known_archs(known) if re.match(r"gfx\d", name) else suggest(name, known)
            raise UnknownNameError(f"unknown arch {name}", hint=hint)
        if name in names[:number]:
            raise UnknownNameError(f"arch {name} is named twice", hint="name each arch once")
    return names


def _known_archs(known: Collection[str]) -> str:
    return f"known archs: {', '.join(known)}"


KeepValue = bool | int | str


class Profile(Manifest):
    """What a build compiles: values kept per choice name; a choice that is not named keeps every value."""

    description: str
    complete: bool
    keep: dict[str, tuple[KeepValue, ...]]


class Profiles(Manifest):
    """`profiles.yaml`: every profile that `--profile` takes, and the default one."""

    schema_version: Literal[1] = Field(alias="schema")
    default: Name
    profiles: dict[Name, Profile]

    @model_validator(mode="after")
    def _default_exists(self) -> Profiles:
        if self.default not in self.profiles:
            raise ValueError(
                f"default profile {self.default!r} is not among {', '.join(sorted(self.profiles))}"
            )
        return self


def load_architectures(folder: Path = MANIFESTS) -> Architectures:
    """`folder`/architectures.yaml, parsed once per process and version of the file. Raises ManifestError."""
    path = folder / "architectures.yaml"
    try:
        status = path.stat()
    except OSError:
        return load(path, Architectures)  # reports the error
    return _architectures(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=16)
def _architectures(path: Path, _modified: int, _size: int) -> Architectures:
    return load(path, Architectures)


def load_profiles(folder: Path) -> Profiles:
    """`folder`/profiles.yaml. Raises ManifestError."""
    return load(folder / "profiles.yaml", Profiles)
