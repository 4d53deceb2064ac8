"""A checkout of the project: its folder, and the content of its manifests and rules."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from aotforge.base.architectures import Architectures, Profiles, load_architectures, load_profiles
from aotforge.base.hazards import Hazards, load_hazards
from aotforge.plan.families import LoadedFamily, load_families


@dataclass(frozen=True)
class Checkout:
    """Values are read once, when they are first needed; they raise ManifestError and RulesError."""

    root: Path

    @property
    def kernels(self) -> Path:
        """Folder of the kernel families."""
        return self.root / "kernels"

    @property
    def manifests(self) -> Path:
        """Folder of the manifests."""
        return self.root / "manifests"

    @cached_property
    def architectures(self) -> Architectures:
        """All archs, with and without kernels."""
        return load_architectures(self.manifests)

    @cached_property
    def profiles(self) -> Profiles:
        """What can be built."""
        return load_profiles(self.manifests)

    @cached_property
    def hazards(self) -> Hazards:
        """Sequences of instructions that need a change."""
        return load_hazards(self.manifests)

    @cached_property
    def families(self) -> tuple[LoadedFamily, ...]:
        """The kernel families, by name."""
        return load_families(self.kernels)
