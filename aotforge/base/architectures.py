"""Models of `manifests/architectures.yaml`, whose head describes the fields, and of `profiles.yaml`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from aotforge.base.manifest_reader import Manifest, load
from aotforge.errors import UnknownNameError, UnsupportedError
from aotforge.rules import Target, Vendor
from vgpu.emulator.targets import extended_rows, simplified

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
Positive = Annotated[int, Field(ge=1)]
_GFX, _SM, _CPU = r"gfx[0-9a-f]{3,5}", r"sm_[0-9]{2,3}", r"cpu-x86-64"
ArchName = Annotated[str, Field(pattern=rf"^({_GFX}|{_SM}|{_CPU}-v[234](-[a-z0-9]+)?)$")]
PackName = Annotated[str, Field(pattern=rf"^(amd-gfx[0-9a-fx]{{3,5}}|nvidia-{_SM}|{_CPU})$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class DeviceProperties(Manifest):
    """One product of an arch, for virtual devices and cost estimates."""

    product: str
    compute_units: Positive
    memory_gib: Positive
    features: str = ""
    clock_mhz: Positive | None = None
    memory_gb_per_s: Annotated[float, Field(gt=0)] | None = None


VectorKind = Literal["ordinary", "transcendental", "convert", "multiply", "wide", "double"]


class MatrixRates(Manifest):
    """Cycles of a matrix instruction. `deep` ones multiply eight or more columns, but not of f8f6f4."""

    cycles: dict[int, Positive]
    double: Positive | None = None
    halved: tuple[Literal["xf32", "deep", "eight bits"], ...] = ()


class CostRates(Manifest):
    """Rates of an arch for cycle estimates; defaults are CDNA's.

    A unit runs a workgroup: a compute unit, on RDNA a workgroup processor of two (`cus_per_unit`). Bandwidths
    are bytes per clock of a unit, latencies cycles. `vector`: cycles that a SIMD's vector unit is busy with
    one wave-instruction. `issue`: cycles between two instructions of a wave. `salu`: cycles of a unit's
    scalar hardware per instruction. `matrix_apart`: matrix instructions have a pipe of their own. `lds_banks`
    decide conflicts within an access; `lds_pipes` work in parallel; `lds_port`: bytes that each of two pairs
    of SIMDs can send or get (0: not known to bound anything). `l1`: bytes per clock of a unit's vector
    caches, which take `address_lanes` addresses a clock. `scratch_latency`: of a vector cache's hit.
    `matrix_latency`, `vector_latency`: from the end of an instruction until another may use its result;
    `vector_latency` 0: the wave's next instruction comes only then. `branch`: cycles until the instruction
    behind a taken branch.
    """

    vector: dict[VectorKind, Positive]
    matrix: MatrixRates | None = None
    issue: Positive = 4
    salu: float = 1
    matrix_apart: bool = True
    lds_banks: Positive = 32
    lds_swizzled: bool = True
    lds_pipes: Positive = 1
    lds_port: Annotated[int, Field(ge=0)] = 64
    l1: Positive = 64
    address_lanes: Positive = 16
    lds_latency: Positive = 64
    memory_latency: Positive = 320
    scratch_latency: Positive = 142
    vector_latency: Annotated[int, Field(ge=0)] = 0
    matrix_latency: Positive = 12
    branch: Positive = 32
    cus_per_unit: Positive = 1


class Architecture(Manifest):
    """One arch of any vendor: what the pipeline needs to know of it."""

    extends: ArchName | None = None
    product_line: str
    products: tuple[str, ...] = ()
    device: DeviceProperties

    vendor: ClassVar[Vendor]
    pack: PackName
    matrix: str
    warp_size: int
    shared_bytes: int

    @property
    def all_products(self) -> tuple[str, ...]:
        """The device's product first."""
        return (self.device.product, *self.products)

    def target(self, arch: str) -> Target:
        """The properties that rules may use."""
        names = ("vendor", "matrix", "warp_size", "shared_bytes")
        return Target(arch=arch, **{name: getattr(self, name) for name in names})


class AmdArchitecture(Architecture):
    """One AMD arch. Of RDNA "cu" is the workgroup processor, as their images are compiled for it."""

    vendor = "amd"
    warp_size: Literal[32, 64] = Field(alias="wavefront")
    matrix: Literal["MFMA", "WMMA", "none"]
    accumulators: Literal["split", "unified", "none"]
    shared_bytes: Positive = Field(alias="lds_bytes")
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
    emulator: dict[Name, bool | int] | None = None
    cost: CostRates | None = None


class NvidiaArchitecture(Architecture):
    """One compute capability of NVIDIA. Registers and shared memory are a multiprocessor's."""

    vendor = "nvidia"
    warp_size: Literal[32]
    matrix: Literal["MMA", "WGMMA", "TCGEN05"]
    shared_bytes: Positive
    shared_per_sm: Positive
    shared_reserved: Annotated[int, Field(ge=0)]
    shared_granule: Positive
    registers: Positive
    register_granule: Positive
    max_warps: Positive
    max_blocks: Positive
    schedulers: Positive


class CpuArchitecture(Architecture):
    """One level of x86-64. `lanes`: float32 in a vector register."""

    vendor = "cpu"
    warp_size: Literal[1] = 1
    lanes: Literal[4, 8, 16]
    matrix: Literal["none", "AVX512-BF16", "AMX"]
    shared_bytes: Positive = Field(alias="thread_bytes")


class CompileAliases(Manifest):
    """Archs whose images some of Triton's passes compile as another arch's."""

    archs: dict[ArchName, ArchName]
    passes: Annotated[tuple[Name, ...], Field(min_length=1)]


class Architectures(Manifest):
    """`architectures.yaml`: every arch that `--arch` takes, and products of archs that it does not take."""

    schema_version: Literal[1] = Field(alias="schema")
    amd: dict[ArchName, AmdArchitecture]
    compile_aliases: CompileAliases | None = None
    nvidia: dict[ArchName, NvidiaArchitecture]
    cpu: dict[ArchName, CpuArchitecture]
    other_archs: dict[ArchName, tuple[str, ...]]

    @field_validator("amd", "nvidia", "cpu", mode="before")
    @classmethod
    def _extend(cls, rows: object) -> object:
        return extended_rows(rows) if isinstance(rows, dict) else rows

    def lineage(self, arch: str) -> tuple[str, ...]:
        """The arch, the one that it extends, and so on."""
        row = self.architectures.get(arch)
        return (arch, *(self.lineage(row.extends) if row and row.extends else ()))

    @cached_property
    def architectures(self) -> Mapping[str, Architecture]:
        """Every arch of every vendor, by name."""
        return {**self.amd, **self.nvidia, **self.cpu}

    def aliases(self, arch: str) -> tuple[tuple[str, str], ...]:
        """Passes of Triton that get another arch, and that arch."""
        if (table := self.compile_aliases) is None:
            return ()
        others = [table.archs[name] for name in self.lineage(arch) if name in table.archs]
        return tuple((name, others[0]) for name in table.passes) if others else ()

    @property
    def emulated(self) -> tuple[str, ...]:
        """Archs whose images any machine can verify: those that the virtual GPU executes."""
        return tuple(name for name, row in self.amd.items() if row.emulator is not None)

    def find(self, arch: str) -> Architecture:
        """By its name. Raises UnknownNameError, UnsupportedError."""
        return self.architectures[find_arch(arch, self).arch]

    @cached_property
    def products(self) -> Mapping[str, str]:
        """Arch by product, each in the form of `simplified`."""
        rows = {name: row.all_products for name, row in self.architectures.items()}
        return {
            simplified(product): name for name, many in (rows | self.other_archs).items() for product in many
        }


_FEATURES = re.compile(r"([a-z]+[+-](:[a-z]+[+-])*)?")
_ARCH_OR_PRODUCT = re.compile(
    r"gfx[0-9][0-9a-f]{2,4}|sm_?[0-9]{2,3}[af]?|(mi|rx|rtx|pro|g?[abh]|[lrtvw])?[0-9]{2,}[a-z]*"
)


@dataclass(frozen=True, kw_only=True)
class NamedArch:
    """An arch and, where the user wrote something else, `note`: how it was understood."""

    arch: str
    note: str = ""


def find_arch(text: str, architectures: Architectures, *, also: Collection[str] = ()) -> NamedArch:
    """The arch of `gfx908`, `GFX908`, `gfx908:sramecc+:xnack-`, `MI100` or `AMD Instinct MI100`.

    Raises UnknownNameError, and UnsupportedError for an arch without kernels that is not in `also`.
    """
    given = text.strip()
    name, colon, features = given.lower().partition(":")
    if colon and not _FEATURES.fullmatch(features):
        cause = f"{features!r} are not target features"
        raise UnknownNameError(f"unknown arch {text}", cause=cause, hint="gfx908:sramecc+:xnack-")
    products, short = architectures.products, simplified(name)
    product = products.get(short) or products.get(f"rx{short}")
    arch = product or name
    if arch in architectures.architectures or arch in also:
        note = f"{given} is {arch}" if product else ""
        if colon:
            note = f"{given} is taken as {arch}: its images run with any of these features"
        return NamedArch(arch=arch, note=note)
    known = f"known archs: {', '.join(architectures.architectures)}"
    if product or arch in architectures.other_archs:
        raise UnsupportedError(
            f"no kernels for {arch}{f' ({given})' if product else ''} yet",
            cause="it is another arch than those with kernels, and cannot load their images",
            hint=known,
        )
    # the nearest name to one of the form of an arch or product is another GPU's
    if not _ARCH_OR_PRODUCT.fullmatch(short) and (
        near := difflib.get_close_matches(name, architectures.architectures, n=1, cutoff=0.7)
    ):
        known = f"perhaps you meant {near[0]}"
    raise UnknownNameError(f"unknown arch {given or '(empty)'}", hint=known)


def parse_archs(text: str, architectures: Architectures) -> tuple[NamedArch, ...]:
    """The archs of an `--arch` flag, joined by commas, in its order. Raises as `find_arch`."""
    named = tuple(find_arch(part, architectures) for part in text.split(","))
    archs = [architecture.arch for architecture in named]
    if twice := [arch for arch in archs if archs.count(arch) > 1]:
        raise UnknownNameError(f"arch {twice[0]} is named twice", hint="name each arch once")
    return named


KeepValue = bool | int | str


class Profile(Manifest):
    """What a build compiles: values kept per choice name; `general`: also images that serve the rest."""

    description: str
    complete: bool
    general: bool = False
    keep: dict[str, tuple[KeepValue, ...]]


class Profiles(Manifest):
    """`profiles.yaml`: every profile that `--profile` takes, and the default one."""

    schema_version: Literal[1] = Field(alias="schema")
    default: Name
    profiles: dict[Name, Profile]


def load_architectures(folder: Path = MANIFESTS) -> Architectures:
    """`folder`/architectures.yaml, parsed once per process. Raises ManifestError."""
    return _architectures(folder / "architectures.yaml")


@cache
def _architectures(path: Path) -> Architectures:
    return load(path, Architectures)


def load_profiles(folder: Path) -> Profiles:
    """`folder`/profiles.yaml. Raises ManifestError."""
    return load(folder / "profiles.yaml", Profiles)
