"""Model of `manifests/ci.yaml`; comments there explain each key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from aotforge.base.manifest_reader import Manifest, load

Minutes = Annotated[int, Field(ge=1, le=360)]
Platform = Literal["linux", "windows"]
Executor = Literal["local", "docker", "podman", "bubblewrap"]


class Division(Manifest):
    """How many shards a pack has: times in minutes of a runner with `cpus`, `seconds_per_unit` in CPU seconds."""

    minutes_per_job: Minutes
    setup_minutes: Minutes
    cpus: Annotated[int, Field(ge=1, le=256)]
    seconds_per_unit: Annotated[float, Field(gt=0)]

    @model_validator(mode="after")
    def _time_is_left(self) -> Division:
        if self.minutes_per_job <= self.setup_minutes:
            raise ValueError("minutes_per_job leaves nothing after setup_minutes")
        return self


class Timeouts(Manifest):
    """Minutes by kind of job."""

    plan: Minutes
    check: Minutes
    images: Minutes
    runtime: Minutes
    release: Minutes
    required: Minutes


class Action(Manifest):
    """A GitHub action by its full commit; `version` is the release of that commit."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+/[A-Za-z0-9_./-]+$")]
    version: Annotated[str, Field(pattern=r"^v[0-9]+\.[0-9]+\.[0-9]+$")]
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]

    @property
    def uses(self) -> str:
        """The value of `uses:`."""
        return f"{self.name}@{self.commit} # {self.version}"


class Github(Manifest):
    """Values of the workflow's placeholders."""

    runner: str
    branch: str
    retention_days: Annotated[int, Field(ge=1, le=90)]
    actions: dict[str, Action]


class CiManifest(Manifest):
    """The file."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    profile: str
    archs: Annotated[tuple[str, ...], Field(min_length=1)]
    platforms: tuple[Platform, ...]
    executor: Executor
    packages: dict[str, tuple[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.+-]+$")], ...]]
    division: Division
    timeouts: Timeouts
    github: Github

    @model_validator(mode="after")
    def _no_repetition(self) -> CiManifest:
        if len(set(self.archs)) != len(self.archs) or len(set(self.platforms)) != len(self.platforms):
            raise ValueError("an arch or a platform is listed twice")
        if "linux" not in self.platforms:
            raise ValueError("the release is merged with the linux runtime, so it must be among platforms")
        return self


def load_ci_manifest(folder: Path) -> CiManifest:
    """`folder`/ci.yaml. Raises ManifestError."""
    return load(folder / "ci.yaml", CiManifest)
