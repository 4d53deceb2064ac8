"""The matrix with our own release in it: which rows a release serves, and what is known of a pair."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.manifest_reader import load
from aotforge.conformance.call_facts import Calls, load_calls
from aotforge.conformance.interface import Interface, load_interface
from aotforge.conformance.matrix_models import Matrix as MatrixFile
from aotforge.conformance.matrix_models import Row, Statement, feature_level, library_name, version_key
from aotforge.errors import ManifestError, UnknownNameError, suggest

__all__ = ["Compatibility", "Service", "load_matrix"]


@dataclass(frozen=True, kw_only=True)
class Service:
    """What our release is to one row. `build`: that PyTorch's sources compile against it. `links`: SONAMEs under which it can be put into
    installed builds of that PyTorch. `reason`: why not, or what the limits are; empty when nothing is to be said.
    """

    row: Row
    build: bool
    links: tuple[str, ...]
    partly: bool
    reason: str

    @property
    def word(self) -> str:
        """`build, drop-in`, `partly`, `no` or `unknown`."""
        if self.row.status == "not-established":
            return "unknown"
        ways = [name for name, holds in (("build", self.build), ("drop-in", self.links)) if holds]
        return ("partly: " if self.partly else "") + ", ".join(ways) if ways else "no"


@dataclass(frozen=True, kw_only=True)
class Compatibility:
    """`compat/` as values, and our release's place in it. `level` is our API level (0.11), `names` the library's names, SONAME first."""

    matrix: MatrixFile
    calls: Calls
    interface: Interface
    level: str
    api: str
    names: tuple[str, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        """The matrix's rows, in the file's order."""
        return self.matrix.rows

    def find(self, pytorch: str, *, fork: bool = False) -> Row:
        """The row of a PyTorch version: 2.9, 2.9.1 or main (its latest state). Raises UnknownNameError."""
        project = "rocm-fork" if fork else "upstream"
        wanted = ".".join(pytorch.removeprefix("v").split("+")[0].split(".")[:2])
        of_project = [row for row in self.rows if row.project == project]
        found = [row for row in of_project if row.pytorch == wanted]
        if not found:
            found = [row for row in of_project if row.and_older and _not_newer(wanted, row.pytorch)]
        if not found:
            known = [row.pytorch for row in of_project]
            raise UnknownNameError(
                f"{project} PyTorch {pytorch} is not in the matrix",
                cause=suggest(wanted, known),
                hint="`./dev compat.show` lists the rows" + ("" if fork else "; --fork means ROCm/pytorch"),
            )
        return found[-1]

    def row_named(self, name: str) -> Row:
        """The row with that very name. Raises UnknownNameError."""
        for row in self.rows:
            if row.name == name:
                return row
        raise UnknownNameError(f"{name!r} is no row", cause=suggest(name, [row.name for row in self.rows]))

    def service(self, row: Row) -> Service:
        """What our release is to that row."""
        pins = row.releases("pins")
        served = [name for name in pins if self.serves(name)]
        refusal = self._refusal(row)
        build = not refusal and bool(served or any(map(self.serves, row.releases("compiles"))))
        links = tuple(dict.fromkeys(name for name in map(library_name, served) if name in self.names))
        strangers = [name for name in pins if name not in served]
        partly = bool(served and strangers)
        reason = refusal
        if partly:
            reason = f"only commits that pin {', '.join(served)}; those with {', '.join(strangers)} need their own API level"
        return Service(row=row, build=build, links=links, partly=partly, reason=reason)

    def serves(self, release: str) -> bool:
        """Programs built against that AOTriton release run with ours."""
        return release in self.interface.levels[self.level].serves

    def _refusal(self, row: Row) -> str:
        if row.status != "supported":
            return row.remarks[0]
        if any(map(self.serves, (*row.releases("pins"), *row.releases("compiles")))):
            return ""
        levels = sorted({feature_level(name) for name in row.releases("pins")}, key=version_key)
        why = f"it is written for API level {' and '.join(levels)}, this release is {self.level}"
        known = self.calls.sets[row.calls].refusal if row.calls else ""
        return f"{why}: {known}" if known else f"{why}, with other structs"

    def known_releases(self) -> tuple[str, ...]:
        """Every AOTriton release that a row names, oldest first."""
        names = {name for row in self.rows for s in row.statements for name in s.releases}
        return tuple(sorted(names, key=version_key))

    def release_named(self, name: str) -> str:
        """An AOTriton release as a user writes it (0.10b, 0.10, v0.10b). Raises UnknownNameError for what is no release."""
        wanted = name.removeprefix("v").removesuffix("b") + "b"
        known = self.known_releases()
        if wanted in known or re.fullmatch(r"0\.[0-9]+(\.[0-9]+)?b", wanted):
            return wanted
        raise UnknownNameError(f"{name} is no release of AOTriton", cause=suggest(wanted, known))

    def about(self, row: Row, release: str) -> tuple[Statement, ...]:
        """Statements of the row that name the release, or (README) its feature release."""
        feature = f"{feature_level(release)}b"
        return tuple(
            s
            for s in row.statements
            if release in s.releases or (s.relation == "documented" and feature in s.releases)
        )


def load_matrix(folder: Path) -> Compatibility:
    """`folder`/compat and the names in `folder`/manifests/release.yaml; `folder` is a checkout. Raises ManifestError."""
    from aotforge.release.release_manifest import load_release_manifest  # noqa: PLC0415 - the release room is slow to import

    manifest = load_release_manifest(folder / "manifests" / "release.yaml")
    calls = load_calls(folder / "compat" / "pytorch_calls.yaml")
    matrix = load(folder / "compat" / "pytorch.yaml", MatrixFile)
    interface = load_interface(folder / "compat" / "api_levels.yaml")
    check_references(matrix, calls, folder / "compat" / "pytorch.yaml")
    return Compatibility(
        matrix=matrix,
        calls=calls,
        interface=interface,
        level=feature_level(manifest.api_level),
        api=manifest.api_level,
        names=(manifest.soname, *manifest.older_names),
    )


def check_references(matrix: MatrixFile, calls: Calls, path: Path) -> None:
    """Rows name sets of calls that exist. Raises ManifestError."""
    for row in matrix.rows:
        if row.calls and row.calls not in calls.sets:
            raise ManifestError(
                f"{path}: {row.name}: calls: {row.calls!r} is no set of pytorch_calls.yaml",
                cause=suggest(row.calls, calls.sets),
            )


def _not_newer(wanted: str, pytorch: str) -> bool:
    parts = wanted.split(".")
    return all(part.isdigit() for part in parts) and version_key(wanted) <= version_key(pytorch)
