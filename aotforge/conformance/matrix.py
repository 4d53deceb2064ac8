"""The compatibility matrix, and what to install for a PyTorch and an arch."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aotforge.base.architectures import find_arch, load_architectures
from aotforge.base.hardware import HardwareRun, load_hardware_runs
from aotforge.base.manifest_reader import load
from aotforge.conformance.matrix_models import Calls, Interface, Row, Statement
from aotforge.conformance.matrix_models import Matrix as MatrixFile
from aotforge.errors import ManifestError, UnknownNameError, UnsupportedError, suggest
from aotforge.formats.api_level import (
    RELEASE_PATTERN,
    feature_level,
    library_level,
    library_name,
    version_key,
)
from aotforge.formats.artifact_names import ArtifactName
from aotforge.release.model import ReleaseManifest, load_release_manifest

_DROP_IN = "./dev dropin --pytorch-lib SITE-PACKAGES/torch/lib     # --undo restores"
_PLATFORM = re.compile(r"manylinux_2_(?P<minor>[0-9]+)(_x86_64)?")
_BY_RELATION = {
    "pins": "is what this PyTorch pins",
    "drop-in-only": "only as a drop-in for an installed PyTorch, not to build with",
    "compiles": "compiles and links; it is not what this PyTorch pins",
}


@dataclass(frozen=True, kw_only=True)
class Service:
    """Our release's use for one row. `build`: that PyTorch's sources compile against it.

    `links`: SONAMEs under which it can be put into installed builds. `reason`: why not, or the limits.
    """

    row: Row
    build: bool
    links: tuple[str, ...]
    partly: bool
    reason: str

    @property
    def word(self) -> str:
        """`build, drop-in`, `partly: ...`, `no` or `unknown`."""
        if self.row.status == "not-established":
            return "unknown"
        uses = [name for name, holds in (("build", self.build), ("drop-in", self.links)) if holds]
        return ("partly: " if self.partly else "") + ", ".join(uses) if uses else "no"


@dataclass(frozen=True, kw_only=True)
class Compatibility:
    """The contents of `compat/`, the settings of our release, and imported checks on hardware."""

    matrix: MatrixFile
    calls: Calls
    interface: Interface
    release: ReleaseManifest
    hardware: tuple[HardwareRun, ...] = ()

    @property
    def level(self) -> str:
        """Our API level, e.g. 0.11."""
        return feature_level(self.release.api_level)

    @property
    def names(self) -> tuple[str, ...]:
        """The library's names, SONAME first."""
        return (self.release.soname, *self.release.other_names)

    @property
    def rows(self) -> tuple[Row, ...]:
        """The matrix's rows, in the file's order."""
        return self.matrix.rows

    def find(self, pytorch: str, *, fork: bool = False) -> Row:
        """The row of a PyTorch version: 2.9, 2.9.1+rocm6.4 or main. Raises UnknownNameError.

        A local part of AMD's wheels selects the row of ROCm/pytorch.
        """
        # AMD's wheels are +rocm7.14.0, upstream's +rocm7.2
        amd = re.match(r"rocm[0-9]+\.[0-9]+\.[0-9]", pytorch.partition("+")[2])
        project = "rocm-fork" if fork or amd else "upstream"
        wanted = ".".join(pytorch.removeprefix("v").split("+")[0].split(".")[:2])
        rows = [row for row in self.rows if row.project == project]
        matching = [row for row in rows if row.pytorch == wanted]
        matching = matching or [row for row in rows if row.and_older and _not_newer(wanted, row.pytorch)]
        if not matching:
            raise UnknownNameError(
                f"{project} PyTorch {pytorch} is not in the matrix",
                # the nearest name of another version would be another PyTorch
                cause=f"known versions: {', '.join(dict.fromkeys(row.pytorch for row in rows))}",
                hint="`./dev compat` lists the rows"
                + ("" if project == "rocm-fork" else "; --fork means ROCm/pytorch"),
            )
        return matching[-1]

    def service(self, row: Row) -> Service:
        """Our release's use for that row."""
        pins = row.releases("pins")
        served = [name for name in pins if self.serves(name)]
        others = [name for name in pins if name not in served]
        reason = refusal = self._refusal(row)
        if served and others:
            reason = f"only commits that pin {', '.join(served)}; "
            reason += f"those with {', '.join(others)} need their own API level"
        return Service(
            row=row,
            build=not refusal and bool(served or any(map(self.serves, row.releases("compiles")))),
            links=() if refusal else tuple(n for n in row.library_names if library_level(n) == self.level),
            partly=bool(served and others),
            reason=reason,
        )

    def serves(self, release: str) -> bool:
        """True when programs built against that AOTriton release run with ours."""
        return feature_level(release) == self.level

    def _refusal(self, row: Row) -> str:
        if row.status != "supported":
            return row.remarks[0]
        if any(map(self.serves, (*row.releases("pins"), *row.releases("compiles")))):
            return ""
        levels = sorted({feature_level(name) for name in row.releases("pins")}, key=version_key)
        why = f"it is written for API level {' and '.join(levels)}, this release is {self.level}"
        known = self.calls.sets[row.calls].refusal if row.calls else ""
        return f"{why}: {known}" if known else f"{why}, with other structs"

    def release_named(self, name: str) -> str:
        """An AOTriton release as a user writes it (0.10b, 0.10, v0.10b). Raises UnknownNameError."""
        wanted = name.removeprefix("v")
        wanted = wanted if re.search(r"tp[0-9]*$", wanted) else wanted.removesuffix("b") + "b"
        known = {name for row in self.rows for s in row.statements for name in s.releases}
        if re.fullmatch(RELEASE_PATTERN, wanted):
            return wanted
        raise UnknownNameError(
            f"{name} is not a release of AOTriton", cause=suggest(wanted, sorted(known, key=version_key))
        )

    def about(self, row: Row, release: str) -> tuple[Statement, ...]:
        """Statements of the row that name the release, or (README) its feature release."""
        feature = f"{feature_level(release)}b"
        return tuple(
            s
            for s in row.statements
            if release in s.releases or (s.relation == "documented" and feature in s.releases)
        )

    def verdict(self, row: Row, release: str) -> str:
        """One sentence on a pair; the strongest statement decides: a prohibition, then the pin."""
        if row.status != "supported":
            return row.remarks[0]
        relations = {s.relation: s for s in reversed(self.about(row, release)) if not s.as_of}
        if "must-not" in relations:
            return f"must not be given: {relations['must-not'].reason}"
        for relation, text in _BY_RELATION.items():
            if relation in relations:
                return text
        pins = row.releases("pins")
        if feature_level(release) in map(feature_level, pins):
            link = library_name(pins[0])
            return f"a point release of what is pinned: a drop-in replacement, by a link named {link}"
        if "documented" in relations:
            return "the README lists the two together"
        return "no statement: there is no evidence that the two fit"


def load_matrix(folder: Path, version: str | None = None) -> Compatibility:
    """Reads `compat/` and manifests/release.yaml of the checkout, at the API level of `version` (0.13b).

    Raises ManifestError, UnknownNameError for a level that the checkout does not make.
    """
    calls = load(folder / "compat" / "pytorch_calls.yaml", Calls)
    path = folder / "compat" / "pytorch.yaml"
    matrix = load(path, MatrixFile)
    for row in matrix.rows:
        if row.calls and row.calls not in calls.sets:
            raise ManifestError(
                f"{path}: {row.name}: calls: {row.calls!r} is not a set of pytorch_calls.yaml",
                cause=suggest(row.calls, calls.sets),
            )
    return Compatibility(
        matrix=matrix,
        calls=calls,
        interface=load(folder / "compat" / "api_levels.yaml", Interface),
        release=load_release_manifest(folder / "manifests" / "release.yaml", version),
        hardware=load_hardware_runs(folder / "manifests"),
    )


def levels_for(folder: Path, pytorch: str, *, fork: bool = False) -> tuple[str, ...]:
    """API levels of the checkout that a PyTorch can be built with: first those that it pins.

    Raises ManifestError, UnknownNameError for an unknown version, UnsupportedError when there is none.
    """
    compat = load_matrix(folder)
    row = compat.find(pytorch, fork=fork)
    levels = serving_levels(compat, row)
    if not levels:
        raise UnsupportedError(
            f"PyTorch {pytorch} cannot be built with any API level of this checkout",
            cause=compat.service(row).reason or "the matrix has no statement that it compiles",
            hint=f"`./dev compat --pytorch {pytorch} --arch gfx908` shows what it takes",
        )
    return levels


def serving_levels(compat: Compatibility, row: Row) -> tuple[str, ...]:
    """API levels that serve a row: first those that it pins, the default before others; () when none does."""
    serving = []
    for level in compat.release.api_levels:
        own = replace(compat, release=compat.release.at(level))
        if own.service(row).build:
            serving.append((not any(map(own.serves, row.releases("pins"))), level))
    return tuple(level for _, level in sorted(serving, key=lambda pair: pair[0]))


def levels_of_names(folder: Path, names: Sequence[str]) -> tuple[str, ...]:
    """API levels for a program that needs these names. Raises UnsupportedError when there is none."""
    manifest = load_release_manifest(folder / "manifests" / "release.yaml")
    features = {library_level(name) for name in names}
    levels = tuple(level for level in manifest.api_levels if {feature_level(level)} == features)
    if levels:
        return levels
    known = ", ".join(feature_level(level) for level in manifest.api_levels)
    raise UnsupportedError(
        f"no API level of this checkout serves {', '.join(names)}",
        cause="the libraries of this PyTorch need several feature releases at once"
        if len(features) > 1
        else f"it is of feature release {min(features, default='')}, and this checkout makes {known}",
        hint="`./dev compat` lists the PyTorch versions that each level serves",
    )


def _not_newer(wanted: str, pytorch: str) -> bool:
    parts = wanted.split(".")
    return all(part.isdigit() for part in parts) and version_key(wanted) <= version_key(pytorch)


def pack_serves(pack: str, arch: str) -> bool:
    """PyTorch's rule: the pack's name without `amd-gfx`, x for any character, is in the arch's name."""
    return re.search(pack.removeprefix("amd-gfx").replace("x", "."), arch.removeprefix("gfx")) is not None


@dataclass(frozen=True, kw_only=True)
class InstallOption:
    """One way to install: the result as a text, and `commands` in order."""

    text: str
    commands: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """The AOTriton release whose packs serve the arch, and ours: None with a reason."""

    row: str
    arch: str
    rocm: str
    platform: str
    official: str | None
    official_reason: str
    ours: str | None
    pack: str
    reason: str
    options: tuple[InstallOption, ...]
    warnings: tuple[str, ...]


def recommend(
    compat: Compatibility,
    checkout: Path,
    *,
    pytorch: str,
    arch: str,
    rocm: str = "",
    platform: str = "linux",
    fork: bool = False,
    any_level: bool = False,
) -> Recommendation:
    """By the API level of `compat`, or with `any_level` the one that suits the PyTorch best.

    Raises UnknownNameError for an unknown PyTorch or arch, UnsupportedError for an invalid ROCm or platform.
    """
    row = compat.find(pytorch, fork=fork)
    if any_level and (levels := serving_levels(compat, row)):
        compat = replace(compat, release=compat.release.at(levels[0]))
    if rocm and not re.fullmatch(r"[0-9]+\.[0-9]+(\.[0-9]+)?", rocm):
        raise UnsupportedError(f"--rocm {rocm} is not a valid version", hint="as in --rocm 7.0")
    rocm = ".".join(rocm.split(".")[:2])
    manifest = load_architectures(checkout / "manifests")
    named = find_arch(arch, manifest, also=compat.matrix.official_archs)
    arch, own = named.arch, manifest.amd.get(named.arch)
    obstacle, service = _official_obstacle(compat, row, arch, platform), compat.service(row)
    serves, reason = service.build or bool(service.links), service.reason
    options: tuple[InstallOption, ...] = ()
    if own is None:
        reason = f"this project has no settings for {arch}"
        if arch in manifest.architectures:
            reason = f"PyTorch takes these images on AMD GPUs only, and {arch} is another vendor's"
    elif serves:
        options = tuple(_options(compat, checkout, row, arch, windows=platform == "windows"))
    elif row.status == "not-established" and platform != "windows":
        text = f"into an installed PyTorch {row.pytorch} wheel: what its libtorch_hip.so needs decides"
        command = "./dev dropin --pytorch-lib auto --dry-run     # names the API level to build"
        options = (InstallOption(text=text, commands=(command,)),)
    warnings = [
        *([named.note] if named.note else []),
        *(f"run on hardware: {run.line}" for run in compat.hardware if run.device.arch == arch),
        *_warnings(compat.release, row, rocm, platform, serves=bool(own and serves)),
    ]
    return Recommendation(
        row=row.name,
        arch=arch,
        rocm=rocm,
        platform=platform,
        official=None if obstacle else _newest_pin(row),
        official_reason=obstacle or _official_limit(row, rocm),
        ours=compat.release.name if serves else None,
        pack=own.pack if own else "",
        reason=reason,
        options=options,
        warnings=tuple(warnings),
    )


def _newest_pin(row: Row) -> str:
    return max(row.releases("pins") or row.releases("compiles"), key=version_key)


def _official_obstacle(compat: Compatibility, row: Row, arch: str, platform: str) -> str:
    """Why no official release serves the arch with that PyTorch; empty when one does."""
    if row.status != "supported":
        return row.remarks[0]
    if platform == "windows":
        return "official releases have no library for Windows; PyTorch builds one from source, without images"
    first = compat.matrix.official_archs.get(arch, "never")
    if first == "never":
        return f"no official release has an image pack for {arch}"
    if version_key(first) > version_key(_newest_pin(row)):
        return f"{arch} comes with {first}, this PyTorch pins {_newest_pin(row)}"
    packs = row.delivery.images if row.delivery else None
    if packs is not None and not any(pack_serves(pack, arch) for pack in packs):
        return f"no image pack that this PyTorch downloads serves {arch}"
    return ""


def _official_limit(row: Row, rocm: str) -> str:
    """What differs for a ROCm that the pin does not list."""
    delivery = row.delivery
    if not delivery or not rocm or delivery.rocm_choice != "exact" or rocm in delivery.rocm:
        return ""
    itself = "PyTorch's build would clone and build the library itself"
    return f"its pin lists ROCm {' '.join(delivery.rocm)}, not {rocm}: {itself}"


def _warnings(release: ReleaseManifest, row: Row, rocm: str, platform: str, *, serves: bool) -> Iterator[str]:
    """What does not fit a platform or a version of ROCm. Raises UnsupportedError for an unknown platform."""
    match = _PLATFORM.fullmatch(platform)
    if match is None and platform not in {"linux", "windows"}:
        hint = "linux, windows, or a tag such as manylinux_2_28"
        raise UnsupportedError(f"unknown --platform {platform}", hint=hint)
    if match and int(match["minor"]) < int(release.manylinux.rpartition("_")[2]):
        yield f"the library promises {release.manylinux}; a system of {platform} is too old for it"
    if serves and rocm and rocm not in release.rocm:
        names = f"no tarball is named for ROCm {rocm} (there are {' '.join(release.rocm)})"
        yield f"{names}; all hold the same library, which loads HIP of ROCm 5 to 7 at run time"
    if serves and rocm and row.delivery and row.delivery.rocm and rocm not in row.delivery.rocm:
        yield f"this PyTorch's own pin lists ROCm {' '.join(row.delivery.rocm)}, not {rocm}"


def _options(
    compat: Compatibility, checkout: Path, row: Row, arch: str, *, windows: bool
) -> Iterator[InstallOption]:
    if windows:
        archive = ArtifactName(release=compat.release.name, kind="windows")
        text = f"build PyTorch {row.pytorch} with the archive {archive}, unpacked to PREFIX"
        commands: tuple[str, ...] = ("set AOTRITON_INSTALLED_PREFIX=PREFIX", "python setup.py develop")
        yield InstallOption(text=text, commands=commands)
        return
    default = load_release_manifest(checkout / "manifests" / "release.yaml").api_level
    level = "" if compat.release.api_level == default else f" --version {compat.release.api_level}"
    names = [name for name in row.library_names if library_level(name) == compat.level]
    needed = " or ".join(names) or f"libaotriton_v2.so.{compat.level}.*"
    text = f"into an installed PyTorch {row.pytorch} wheel, whose libtorch_hip.so needs {needed}"
    yield InstallOption(text=text, commands=(f"./dev build --arch {arch}{level}", _DROP_IN))
    text = f"build PyTorch {row.pytorch} with it, without an edit of PyTorch's sources"
    install = (
        f"./dev install --prefix PREFIX --arch {arch}{level} --from PLACE --root ROOT     # of a publisher"
    )
    build = "AOTRITON_INSTALLED_PREFIX=PREFIX python setup.py develop     # in PyTorch's checkout"
    yield InstallOption(text=text, commands=(install, build))
    if row.delivery is not None and row.delivery.from_ == "download":
        text = "or have PyTorch's build download it: the lines for cmake/External/aotriton.cmake"
        yield InstallOption(text=text, commands=(f"./dev compat --pytorch {row.pytorch} --pins newest",))
