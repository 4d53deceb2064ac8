"""Model of `manifests/hazards.yaml`: faults of code that a check or special numbers show, by arch."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from aotforge.base.architectures import ArchName, load_architectures
from aotforge.base.manifest_reader import Manifest, load

HazardName = Literal[
    "dual-issue-parity",
    "dual-issue-after-dpp",
    "store-before-barrier",
    "shared-store-before-barrier",
    "bf16-dot-truncates",
    "buffer-atomic-dropped",
    "transpose-with-partial-exec",
    "fp8-to-bf16",
    "fp16-to-fp8e4nv",
    "float-to-u8",
    "infinity-to-fp8",
]
_LANGUAGE = {"fp": "float", "bf": "bfloat", "i": "int", "u": "uint"}


class Hazard(Manifest):
    """One fault. `cure`: what compile jobs for these archs, or those in `cured` alone, do; `none`: nothing.
    `without`: archs that extend one of `archs` and do not have the fault.

    `found`: in the machine code, or by cases that have special numbers. Jobs are cured whose loops have at
    least `stages` stages, and that have an element type of each list of `types`. `avoid`: what a kernel can
    do itself.
    """

    archs: Annotated[tuple[ArchName, ...], Field(min_length=1)]
    without: tuple[ArchName, ...] = ()
    cured: tuple[ArchName, ...] = ()
    fault: str
    source: Annotated[str, Field(pattern=r"^https://")]
    cure: Literal["split", "wait", "through-wider", "none"]
    found: Literal["code", "results"] = "code"
    stages: int = 0
    types: tuple[tuple[str, ...], ...] = ()
    avoid: str = ""

    def concerns(self, stages: int, names: Collection[str]) -> bool:
        """Whether a job is cured that has a number of stages and these types, or names of the language."""
        given = all(any({kind, _in_language(kind)} & {*names} for kind in group) for group in self.types)
        return self.cure != "none" and stages >= self.stages and given


class Hazards(Manifest):
    """`hazards.yaml`. Every hazard must be in it: a check without archs would find nothing."""

    schema_version: Literal[1] = Field(alias="schema")
    hazards: Annotated[dict[HazardName, Hazard], Field(min_length=11)]

    def of(self, arch: str) -> dict[HazardName, Hazard]:
        """The hazards of an arch."""
        return {name: hazard for name, hazard in self.hazards.items() if arch in hazard.archs}

    def cures(self, arch: str, stages: int = 1, names: Collection[str] = ()) -> tuple[HazardName, ...]:
        """The hazards of an arch that a compile job cures; `names` as `Hazard.concerns` takes them."""
        return tuple(
            name
            for name, hazard in self.of(arch).items()
            if arch in (hazard.cured or hazard.archs) and hazard.concerns(stages, names)
        )


def load_hazards(folder: Path) -> Hazards:
    """`folder`/hazards.yaml, with the archs that extend those which it names. Raises ManifestError."""
    table, known = load(folder / "hazards.yaml", Hazards), load_architectures(folder)
    lineages = {arch: set(known.lineage(arch)) for arch in known.architectures}

    def extended(hazard: Hazard, archs: tuple[ArchName, ...]) -> tuple[ArchName, ...]:
        return tuple(
            a for a in lineages if lineages[a] & set(archs) and not lineages[a] & set(hazard.without)
        )

    every = {
        name: hazard.model_copy(
            update={"archs": extended(hazard, hazard.archs), "cured": extended(hazard, hazard.cured)}
        )
        for name, hazard in table.hazards.items()
    }
    return table.model_copy(update={"hazards": every})


def _in_language(kind: str) -> str:
    """A type's name in `triton.language`: uint8 of u8."""
    letters = re.match("[a-z]+", kind)
    return f"{_LANGUAGE.get(letters[0], letters[0])}{kind[len(letters[0]) :]}" if letters else kind
