"""Models of `compat/pytorch.yaml`: which AOTriton each PyTorch takes, every statement with its evidence."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from aotforge.base.architectures import ArchName, PackName
from aotforge.base.manifest_reader import Manifest

ReleaseName = Annotated[str, Field(pattern=r"^0\.[0-9]+(\.[0-9]+)?b$")]
"""A release of AOTriton. Without a point release (0.9b) a README means the whole feature release."""

RocmVersion = Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+$")]
PytorchVersion = Annotated[str, Field(pattern=r"^(2\.[0-9]+|main)$")]
Evidence = Literal["pin", "compiles", "readme"]
Project = Literal["upstream", "rocm-fork"]
Relation = Literal["pins", "compiles", "documented", "drop-in-only", "must-not"]
Reason = Literal["link trouble", "run-time failure", "lost feature"]


class Note(Manifest):
    """A footnote of the reference matrix."""

    text: str
    evidence: Evidence
    references: tuple[str, ...] = ()


class Statement(Manifest):
    """What is known of one PyTorch and some AOTriton releases. `note` explains it; `as_of` dates one that was withdrawn since."""

    relation: Annotated[Relation, Field(alias="says")]
    releases: Annotated[tuple[ReleaseName, ...], Field(min_length=1)]
    evidence: Evidence
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{8,40}$")] | None = None
    reason: Reason | None = None
    note: str | None = None
    as_of: str | None = None

    @model_validator(mode="after")
    def _a_prohibition_has_a_reason(self) -> Statement:
        if (self.relation == "must-not") != (self.reason is not None):
            raise ValueError("`must-not` has a reason, nothing else has")
        return self


class Delivery(Manifest):
    """How that PyTorch gets AOTriton, read from its pin. `images` None: one file holds library and images (before 0.11b), or not known.

    `rocm_choice`: how the ROCm in a file name is chosen from `rocm`.
    """

    link: Literal["static", "shared"]
    from_: Annotated[Literal["source", "download"], Field(alias="from")]
    manylinux: Annotated[str, Field(pattern=r"^manylinux_2_[0-9]+$")] | None = None
    rocm: tuple[RocmVersion, ...] = ()
    rocm_choice: Literal["clamp", "last-not-above", "exact"] | None = None
    images: tuple[PackName, ...] | None = None
    evidence: Evidence = "pin"


class Row(Manifest):
    """One PyTorch. `period` tells states of main apart; `calls` is its set in pytorch_calls.yaml, `calls_of` whose sources those are when
    they are not this row's own.
    """

    project: Project
    pytorch: PytorchVersion
    period: str | None = None
    and_older: bool = False
    status: Literal["supported", "unsupported", "not-established"] = "supported"
    delivery: Delivery | None = None
    calls: str | None = None
    calls_of: str | None = None
    statements: tuple[Statement, ...]
    notes: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _says_something(self) -> Row:
        if (self.status == "supported") != bool(self.releases("pins")):
            raise ValueError("a supported row pins releases, others pin none")
        if self.status != "supported" and not self.remarks:
            raise ValueError("a row without statements says why in `remarks`")
        return self

    @property
    def name(self) -> str:
        """E.g. `upstream 2.9`, `upstream main (mid-2026)`, `rocm-fork 2.2 and older`."""
        return (
            f"{self.project} {self.pytorch}"
            + (" and older" if self.and_older else "")
            + (f" ({self.period})" if self.period else "")
        )

    def releases(self, relation: Relation) -> tuple[str, ...]:
        """AOTriton releases of the present statements of one kind, in their order."""
        return tuple(
            name for s in self.statements if s.relation == relation and not s.as_of for name in s.releases
        )


class Matrix(Manifest):
    """The whole of pytorch.yaml."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    evidence: dict[Evidence, str]
    notes: dict[str, Note]
    official_archs: dict[ArchName, ReleaseName | Literal["never"]]
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _references_exist(self) -> Matrix:
        names = [row.name for row in self.rows]
        if len(set(names)) != len(names):
            raise ValueError("a row is there twice")
        for row in self.rows:
            said = {s.note for s in row.statements if s.note}
            if unknown := (said | set(row.notes)) - self.notes.keys():
                raise ValueError(f"{row.name} refers to the note {min(unknown)}, which does not exist")
            if lost := said - set(row.notes):
                raise ValueError(
                    f"{row.name} has a statement with the note {min(lost)}, which its notes lack"
                )
        if unused := self.notes.keys() - {name for row in self.rows for name in row.notes}:
            raise ValueError(f"the note {min(unused)} belongs to no row")
        return self


def version_key(name: str) -> tuple[int, ...]:
    """Sorts 0.9.2b before 0.10b, and 2.9 before 2.10."""
    return tuple(int(part) for part in name.removesuffix("b").split("."))


def feature_level(release: str) -> str:
    """0.11 of 0.11.2b: point releases keep their feature release's interface."""
    return ".".join(release.removesuffix("b").split(".")[:2])


def library_name(release: str) -> str:
    """SONAME of a release's library: libaotriton_v2.so.0.11.0 of 0.11b."""
    numbers = (*release.removesuffix("b").split("."), "0", "0")[:3]
    return f"libaotriton_v2.so.{'.'.join(numbers)}"
