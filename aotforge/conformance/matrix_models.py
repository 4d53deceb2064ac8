"""Models of `compat/`: the matrix (pytorch.yaml), pytorch_calls.yaml, and api_levels.yaml."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from aotforge.base.architectures import ArchName, PackName
from aotforge.base.manifest_reader import Manifest
from aotforge.formats.api_level import LIBRARY_PATTERN, RELEASE_PATTERN, library_name

ReleaseName = Annotated[str, Field(pattern=RELEASE_PATTERN)]
"""A release of AOTriton. Without a point release (0.9b) a README means all of the feature release."""

LibraryName = Annotated[str, Field(pattern=LIBRARY_PATTERN)]
RocmVersion = Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+$")]
PytorchVersion = Annotated[str, Field(pattern=r"^(2\.[0-9]+|main)$")]
Evidence = Literal["pin", "compiles", "readme", "report"]
Project = Literal["upstream", "rocm-fork"]
Relation = Literal["pins", "compiles", "documented", "drop-in-only", "must-not"]
Reason = Literal["link trouble", "run-time failure", "lost feature"]


class Note(Manifest):
    """A footnote of the reference matrix."""

    text: str
    evidence: Evidence
    references: tuple[str, ...] = ()


class Statement(Manifest):
    """A relation of one PyTorch to some AOTriton releases. `as_of` dates one that was withdrawn since."""

    relation: Relation
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


class NeededName(Manifest):
    """A library name that the libtorch_hip.so of a `wheel` (its version) needs, and who reported it."""

    name: LibraryName
    wheel: str
    evidence: Evidence
    references: tuple[str, ...] = ()


class Delivery(Manifest):
    """How that PyTorch gets AOTriton, read from its pin. `rocm_choice`: how a file name's ROCm is chosen.

    `images` is None when one file holds library and images (before 0.11b), or when it is not known.
    """

    link: Literal["static", "shared"]
    from_: Annotated[Literal["source", "download"], Field(alias="from")]
    manylinux: Annotated[str, Field(pattern=r"^manylinux_2_[0-9]+$")] | None = None
    rocm: tuple[RocmVersion, ...] = ()
    rocm_choice: Literal["clamp", "last-not-above", "exact"] | None = None
    images: tuple[PackName, ...] | None = None
    evidence: Evidence = "pin"

    @property
    def facts(self) -> list[str]:
        """The facts as short texts, e.g. `shared, download` and `ROCm 6.4 7.0`."""
        rocm = f"ROCm {' '.join(self.rocm)}" if self.rocm else ""
        images = f"images {' '.join(self.images)}" if self.images else ""
        return [text for text in (f"{self.link}, {self.from_}", self.manylinux, rocm, images) if text]


class Row(Manifest):
    """One PyTorch. `period`: state of main; `calls`: set in pytorch_calls.yaml, of the sources `calls_of`.

    `needs`: library names seen in published wheels; others follow from the pins.
    """

    project: Project
    pytorch: PytorchVersion
    period: str | None = None
    and_older: bool = False
    status: Literal["supported", "unsupported", "not-established"] = "supported"
    delivery: Delivery | None = None
    calls: str | None = None
    calls_of: str | None = None
    needs: tuple[NeededName, ...] = ()
    statements: tuple[Statement, ...]
    notes: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _status_fits_the_statements(self) -> Row:
        known = self.releases("pins") or self.releases("compiles")
        if (self.status == "supported") != bool(known):
            raise ValueError("a supported row pins releases or compiles with some, others do not")
        if self.status != "supported" and not self.remarks:
            raise ValueError("a row without statements gives the reason in `remarks`")
        return self

    @property
    def version(self) -> str:
        """E.g. `2.9` or `2.2 and older`."""
        return self.pytorch + (" and older" if self.and_older else "")

    @property
    def name(self) -> str:
        """E.g. `upstream 2.9`, `upstream main (mid-2026)`, `rocm-fork 2.2 and older`."""
        return f"{self.project} {self.version}" + (f" ({self.period})" if self.period else "")

    @property
    def library_names(self) -> tuple[str, ...]:
        """Library names that builds of this PyTorch need: those seen in wheels, and those of its pins."""
        seen = [needed.name for needed in self.needs]
        return tuple(dict.fromkeys((*map(library_name, self.releases("pins")), *seen)))

    def releases(self, relation: Relation) -> tuple[str, ...]:
        """AOTriton releases of the statements of one relation that were not withdrawn, in their order."""
        return tuple(name for s in self.with_relation(relation) if not s.as_of for name in s.releases)

    def with_relation(self, relation: Relation) -> list[Statement]:
        """The statements of one relation."""
        return [s for s in self.statements if s.relation == relation]

    def prohibitions(self) -> list[str]:
        """E.g. `0.9b, 0.9.1b: link trouble`, one text per prohibition."""
        return [f"{', '.join(s.releases)}: {s.reason}" for s in self.with_relation("must-not")]

    def documented(self) -> list[str]:
        """The README's releases, one text per statement, with the date of a withdrawn one."""
        return [
            ", ".join(s.releases) + (f" ({s.as_of})" if s.as_of else "")
            for s in self.with_relation("documented")
        ]


class Matrix(Manifest):
    """The contents of pytorch.yaml."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    evidence: dict[Evidence, str]
    notes: dict[str, Note]
    official_archs: dict[ArchName, ReleaseName | Literal["never"]]
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]


class Call(Manifest):
    """A function of interface version 2 and the types of the arguments that PyTorch passes."""

    function: str
    arguments: tuple[str, ...]


class Version3(Manifest):
    """Use of the params structs of interface version 3. `delta`: what params.D is set to."""

    delta: Literal["tensor", "lazy", "lazy-self"]
    dq_acc: bool = False
    deterministic: bool = False
    strided_varlen: bool = False
    varlen_bits: bool = False


class CallSet(Manifest):
    """The uses of one or several PyTorch releases. `gate`: preprocessor condition of the sources.

    `macros`: of config.h; `gpu_question`: isArchExperimentallySupported; `refusal`: why not with our level.
    """

    levels: Annotated[tuple[str, ...], Field(min_length=1)]
    v2: tuple[str, ...] = ()
    v3: Version3 | None = None
    gate: str = ""
    macros: bool = False
    defines: tuple[str, ...] = ()
    gpu_question: bool = False
    refusal: str = ""


class Fields(Manifest):
    """Fields of the params structs by type: of both, of the forward and of the backward pass."""

    both: dict[str, str]
    fwd: dict[str, str]
    bwd: dict[str, str]


class Calls(Manifest):
    """The contents of pytorch_calls.yaml."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    dtypes: tuple[str, ...]
    headers: tuple[str, ...]
    v2: dict[str, Call]
    v3_fields: Fields
    constants: dict[str, tuple[str, ...]]
    sets: dict[str, CallSet]

    @model_validator(mode="after")
    def _calls_exist(self) -> Calls:
        for name, used in self.sets.items():
            if unknown := set(used.v2) - self.v2.keys():
                raise ValueError(f"set {name} uses {min(unknown)}, which `v2` lacks")
        return self


class TensorViews(Manifest):
    """Sizes in bytes by rank; members of each, R being the rank; ranks that the library instantiates."""

    sizes: dict[int, int]
    instantiated: tuple[int, ...]
    members: tuple[str, ...]

    @property
    def methods(self) -> list[str]:
        """Names of the members without the constructors."""
        matches = (re.search(r"(\w+|operator bool)\(", member) for member in self.members)
        return sorted({match.group(1) for match in matches if match} - {"TensorView"})


class Constants(Manifest):
    """A struct of static constants."""

    type: str
    values: dict[str, int]


class Struct(Manifest):
    """Size and some offsets, measured on the reference's headers; `type name : bits` is a bit-field."""

    size: int
    alignment: int | None = None
    version: int | None = None
    offsets: dict[str, int] = Field(default_factory=dict)
    fields: tuple[str, ...]

    @property
    def field_names(self) -> list[str]:
        """Names of the fields without bit-fields, in their order."""
        return [field.split()[-1] for field in self.fields if " : " not in field]

    @property
    def bit_fields(self) -> list[str]:
        """Names of the bit-fields, in their order."""
        return [field.split()[-3] for field in self.fields if " : " in field]


class LazyTensors(Manifest):
    """LazyTensor<R>: size in bytes by rank."""

    size: dict[int, int]
    fields: tuple[str, ...]


class Level(Manifest):
    """One API level. `functions` are declarations by namespace."""

    version: tuple[int, int, int]
    constants: dict[str, Constants]
    structs: dict[str, Struct]
    lazy_tensor: LazyTensors
    extra_arguments: tuple[str, ...] = ()
    functions: dict[str, tuple[str, ...]]
    experimental_archs: tuple[str, ...]
    preview_archs: tuple[str, ...] = ()


class Interface(Manifest):
    """The contents of api_levels.yaml."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    dtypes: dict[str, int]
    tensor_view: TensorViews
    levels: dict[str, Level]
    errors: dict[str, int]
