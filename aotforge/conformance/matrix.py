"""The compatibility matrix with this checkout's release in it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aotforge.base.hardware import HardwareRun, load_hardware_runs
from aotforge.base.manifest_reader import load
from aotforge.conformance.matrix_models import Calls, Interface, Row, Statement
from aotforge.conformance.matrix_models import Matrix as MatrixFile
from aotforge.errors import ManifestError, UnknownNameError, UnsupportedError, suggest
from aotforge.formats.api_level import RELEASE_PATTERN, feature_level, library_level, version_key
from aotforge.release.model import ReleaseManifest, load_release_manifest


@dataclass(frozen=True, kw_only=True)
class Service:
    """Our release's use for one row. `build`: that PyTorch's sources compile against it.

    `links`: SONAMEs under which it can be put into installed builds. `reason`: why not, or the limits; may be empty.
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
        """The row of a PyTorch version: 2.9, 2.9.1+rocm6.4 or main (its latest state). A local part of AMD's wheels selects the
        row of ROCm/pytorch. Raises UnknownNameError."""
        project = "rocm-fork" if fork or is_amd_wheel(pytorch) else "upstream"
        wanted = ".".join(pytorch.removeprefix("v").split("+")[0].split(".")[:2])
        rows = [row for row in self.rows if row.project == project]
        found = [row for row in rows if row.pytorch == wanted]
        found = found or [row for row in rows if row.and_older and _not_newer(wanted, row.pytorch)]
        if not found:
            raise UnknownNameError(
                f"{project} PyTorch {pytorch} is not in the matrix",
                # the nearest name of another version would be another PyTorch
                cause=f"known versions: {', '.join(dict.fromkeys(row.pytorch for row in rows))}",
                hint="`./dev compat` lists the rows"
                + ("" if project == "rocm-fork" else "; --fork means ROCm/pytorch"),
            )
        return found[-1]

    def service(self, row: Row) -> Service:
        """Our release's use for that row."""
        pins = row.releases("pins")
        served = [name for name in pins if self.serves(name)]
        others = [name for name in pins if name not in served]
        reason = refusal = self._refusal(row)
        if served and others:
            reason = f"only commits that pin {', '.join(served)}; those with {', '.join(others)} need their own API level"
        return Service(
            row=row,
            build=not refusal and bool(served or any(map(self.serves, row.releases("compiles")))),
            links=() if refusal else tuple(n for n in row.library_names if library_level(n) == self.level),
            partly=bool(served and others),
            reason=reason,
        )

    def serves(self, release: str) -> bool:
        """True when programs built against that AOTriton release run with ours: a feature release keeps its interface."""
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


def load_matrix(folder: Path, version: str | None = None) -> Compatibility:
    """Reads `compat/` and manifests/release.yaml of the checkout `folder`, at the API level of `version` (0.13b or 0.13b-r1).
    Raises ManifestError, UnknownNameError for a level that the checkout does not make."""
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
    """API levels of the checkout `folder` that a version of PyTorch can be built with: first those that it pins, the default before others.

    Raises ManifestError, UnknownNameError for a version that is not in the matrix, UnsupportedError when there is none.
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
    """API levels of the checkout `folder` that serve a program which needs these names, such as libaotriton_v2.so.0.12.50: those
    of the same feature release. Raises UnsupportedError when there is none."""
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


def is_amd_wheel(version: str) -> bool:
    """Whether a version's local part is that of AMD's wheels: +rocm7.14.0, where upstream has +rocm7.2."""
    return re.match(r"rocm[0-9]+\.[0-9]+\.[0-9]", version.partition("+")[2]) is not None


def _not_newer(wanted: str, pytorch: str) -> bool:
    parts = wanted.split(".")
    return all(part.isdigit() for part in parts) and version_key(wanted) <= version_key(pytorch)
