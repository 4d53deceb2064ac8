"""Model of `manifests/ci.yaml`; comments there say what each key is for."""

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
            raise ValueError("minutes_per_job leaves nothing beside setup_minutes")
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
    """An action of GitHub's by full commit; `version` is the release that the commit is."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+/[A-Za-z0-9_./-]+$")]
    version: Annotated[str, Field(pattern=r"^v[0-9]+\.[0-9]+\.[0-9]+$")]
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]

    @property
    def uses(self) -> str:
        """What stands behind `uses:`."""
        return f"{self.name}@{self.commit} # {self.version}"


class Github(Manifest):
    """What the workflow needs besides its source."""

    runner: str
    branch: str
    retention_days: Annotated[int, Field(ge=1, le=90)]
    actions: dict[str, Action]


class Gitlab(Manifest):
    """What the child pipeline needs."""

    image: str


class CiManifest(Manifest):
    """The whole file."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    profile: str
    archs: Annotated[tuple[str, ...], Field(min_length=1)]
    platforms: tuple[Platform, ...]
    executor: Executor
    packages: dict[str, tuple[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.+-]+$")], ...]]
    division: Division
    timeouts: Timeouts
    github: Github
    gitlab: Gitlab

    @model_validator(mode="after")
    def _no_repetition(self) -> CiManifest:
        if len(set(self.archs)) != len(self.archs) or len(set(self.platforms)) != len(self.platforms):
            raise ValueError("a chip or a platform is listed twice")
        if "linux" not in self.platforms:
            raise ValueError("the release is gathered with the linux runtime, so it must be among platforms")
        return self


def load_ci_manifest(folder: Path) -> CiManifest:
    """`folder`/ci.yaml. Raises ManifestError."""
    return load(folder / "ci.yaml", CiManifest)
