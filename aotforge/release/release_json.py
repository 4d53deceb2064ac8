"""`release.json`: everything about every image and file of a release, for programs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import Field

from aotforge.compile.model import Resources
from aotforge.errors import ReleaseError
from aotforge.formats.api_level import RELEASE_NAME
from aotforge.plan.model import CompileJob, Plan
from aotforge.release.contents import PackContents, Part, ReleaseContents, ReleasedVerdict, Text
from aotforge.release.model import Origin, ReleaseFile
from aotforge.toolchain.triton import Toolchain

_NOT_IN_KEY = {"key", "label", "toolchain", "spills"}


class DescribedJob(Part):
    """A compile job. `inputs`: the fields that its key hashes, without the shared toolchain."""

    key: Text
    label: Text
    inputs: dict[str, Any]


class DescribedImage(Part):
    """An image with all compile jobs that made it."""

    digest: Text
    resources: Resources
    verdict: ReleasedVerdict | None
    jobs: tuple[DescribedJob, ...]

    @property
    def outcome(self) -> str:
        """The verdict's."""
        return self.verdict.outcome if self.verdict else "not executed"


class DescribedPack(Part):
    """An image pack; name and archs are in links and commands of the page of releases."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    archs: Annotated[tuple[Annotated[str, Field(pattern=r"^[a-z0-9_-]+$")], ...], Field(min_length=1)]
    profile: Text
    images: tuple[DescribedImage, ...]

    @property
    def passed(self) -> int:
        """Images that passed on the virtual GPU."""
        return sum(image.outcome == "passed" for image in self.images)

    @property
    def runs(self) -> int:
        """Launches there."""
        return sum(image.verdict.runs for image in self.images if image.verdict)

    @property
    def spilling(self) -> int:
        """Images that spill registers."""
        return sum(image.resources.spilled_registers > 0 for image in self.images)


class DescribedTools(Part):
    """`BuildTools` without the toolchain."""

    python: Text
    compiler: Text
    zstd: tuple[Text, Text]
    zlib: Text
    executor: Text
    roots: tuple[tuple[Text, Text], ...]


class DescribedOrigin(Part):
    """`Origin`."""

    release: Text
    commit: Text
    archs: tuple[Text, ...]
    profile: Text
    platforms: tuple[Text, ...]
    epoch: int
    tools: DescribedTools


class ReleaseDescription(Part):
    """The document."""

    format: Literal[1] = 1
    release: Annotated[str, Field(pattern=RELEASE_NAME)]
    origin: DescribedOrigin
    toolchain: Toolchain
    files: tuple[ReleaseFile, ...]
    packs: Annotated[tuple[DescribedPack, ...], Field(min_length=1)]

    def encoded(self) -> bytes:
        """The file's bytes."""
        return (json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True) + "\n").encode("utf-8")


def describe_release(
    origin: Origin,
    *,
    plans: Sequence[Plan],
    resources: Mapping[str, Mapping[str, Resources]],
    contents: ReleaseContents,
    files: Iterable[ReleaseFile],
) -> ReleaseDescription:
    """The description of a release. `resources` by pack and image digest.

    Raises ReleaseError when plans, packs and contents list different images.
    """
    rows = {pack.name: pack for pack in contents.packs}
    if not set(rows) == set(resources) == {plan.pack for plan in plans}:
        planned = sorted(plan.pack for plan in plans)
        raise ReleaseError(f"plans are for {planned}, the release holds {sorted(rows)}")
    tools = asdict(origin.tools)
    del tools["toolchain"]
    return ReleaseDescription(
        release=origin.release,
        origin=DescribedOrigin(**asdict(origin) | {"tools": DescribedTools(**tools)}),
        toolchain=origin.tools.toolchain,
        files=tuple(sorted(files, key=lambda file: file.name)),
        packs=tuple(
            DescribedPack(
                name=plan.pack,
                archs=tuple(plan.archs),
                profile=plan.profile,
                images=tuple(_images(plan, rows[plan.pack], resources[plan.pack])),
            )
            for plan in plans
        ),
    )


def _images(plan: Plan, row: PackContents, resources: Mapping[str, Resources]) -> list[DescribedImage]:
    jobs = {job.key: job for job in plan.jobs}
    images = []
    for image in row.images:
        if not jobs.keys() >= set(image.jobs) or image.digest not in resources:
            raise ReleaseError(
                f"{plan.pack}: image {image.digest} is not part of the plan, or has no resources"
            )
        made = tuple(_job(jobs.pop(key)) for key in image.jobs)
        found = resources[image.digest]
        images.append(DescribedImage(digest=image.digest, resources=found, verdict=image.verdict, jobs=made))
    if jobs:
        raise ReleaseError(
            f"{plan.pack}: {next(iter(jobs.values())).label} is planned and not in the release"
        )
    return images


def _job(job: CompileJob) -> DescribedJob:
    fields = {name: value for name, value in asdict(job).items() if name not in _NOT_IN_KEY}
    return DescribedJob(key=job.key, label=job.label, inputs=fields)
