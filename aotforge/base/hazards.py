"""Model of `manifests/hazards.yaml`: faults that no execution in order shows, by arch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from aotforge.base.architectures import ArchName, load_architectures
from aotforge.base.manifest_reader import Manifest, load

HazardName = Literal["dual-issue-parity", "dual-issue-after-dpp", "store-before-barrier"]


class Hazard(Manifest):
    """One fault. `cure`: what compile jobs for these archs do; `none`: the pinned compiler avoids it."""

    archs: Annotated[tuple[ArchName, ...], Field(min_length=1)]
    fault: str
    source: Annotated[str, Field(pattern=r"^https://")]
    cure: Literal["split", "none"]


class Hazards(Manifest):
    """`hazards.yaml`. Every hazard must be in it: a check without archs would find nothing."""

    schema_version: Literal[1] = Field(alias="schema")
    hazards: Annotated[dict[HazardName, Hazard], Field(min_length=3)]

    def of(self, arch: str) -> dict[HazardName, Hazard]:
        """The hazards of an arch."""
        return {name: hazard for name, hazard in self.hazards.items() if arch in hazard.archs}

    def cures(self, arch: str) -> tuple[HazardName, ...]:
        """The hazards of an arch that its compile jobs cure."""
        return tuple(name for name, hazard in self.of(arch).items() if hazard.cure == "split")


def load_hazards(folder: Path) -> Hazards:
    """`folder`/hazards.yaml, with the archs that extend those which it names. Raises ManifestError."""
    table, known = load(folder / "hazards.yaml", Hazards), load_architectures(folder)
    lineages = {arch: set(known.lineage(arch)) for arch in known.architectures}
    every = {
        name: hazard.model_copy(
            update={"archs": tuple(a for a in lineages if lineages[a] & set(hazard.archs))}
        )
        for name, hazard in table.hazards.items()
    }
    return table.model_copy(update={"hazards": every})
