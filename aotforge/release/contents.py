"""`MANIFEST.json`: images and verdicts of a release; `release.json`: all about them."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from aotforge.compile.model import Resources
from aotforge.errors import ReleaseError
from aotforge.formats.api_level import RELEASE_NAME
from aotforge.pack.reader import open_files
from aotforge.plan.model import Plan
from aotforge.release.model import ImageRecord, Origin, PackInput, ReleaseFile
from aotforge.toolchain.triton import Toolchain

FORMAT: Literal[1] = 1
UPSTREAM = "AOTriton "
"""The beginning of the profile of AOTriton's own packs, before its version."""
_T = TypeVar("_T")


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"{text[:80]!r} has control characters or line ends")
    return text


Text = Annotated[str, AfterValidator(_printable)]
"""Text of a publisher, which is printed."""


class Part(BaseModel):
    """A part of the document: frozen, without coercion."""

    model_config = ConfigDict(frozen=True, strict=True, defer_build=True)


class ReleasedVerdict(Part):
    """The verdict on an executed image: test cases, number of launches, SHA-256 of the verifier.

    `worst`: the largest error as a share of the allowed one (docs/verification.md), None when infinite.
    """

    outcome: Text
    cases: tuple[Text, ...]
    runs: int
    worst: float | None
    tools: Text


class ReleasedImage(Part):
    """An image by its SHA-256, and the compile jobs that made it: `labels` and their keys, `jobs`."""

    labels: tuple[Text, ...]
    jobs: tuple[Text, ...]
    digest: Text
    verdict: ReleasedVerdict | None


class PackContents(Part):
    """An image pack."""

    name: Text
    profile: Text
    images: tuple[ReleasedImage, ...]


class ReleaseContents(Part):
    """The document. `development`: why it must not be published; `tarballs`: SHA-256 of the tars."""

    format: Literal[1] = FORMAT
    release: Annotated[str, Field(pattern=RELEASE_NAME)]
    verified: bool
    development: tuple[Text, ...]
    platform: Text
    tarballs: dict[str, Text]
    packs: tuple[PackContents, ...]

    @property
    def upstream(self) -> bool:
        """Library and packs are AOTriton's own, of another format."""
        return any(pack.profile.startswith(UPSTREAM) for pack in self.packs)

    def encoded(self) -> bytes:
        """The file's bytes, without time or machine."""
        return json_document(self.model_dump(mode="json"))


def list_contents(
    release: str,
    packs: Sequence[PackInput],
    platform: str,
    development: Sequence[str],
    tars: Mapping[str, str],
) -> ReleaseContents:
    """The contents of a release that consists of `packs` and the archives `tars`."""
    return ReleaseContents(
        release=release,
        verified=all(record.passed for packed in packs for record in packed.records),
        development=tuple(development),
        platform=platform,
        tarballs=dict(sorted(tars.items())),
        packs=tuple(
            PackContents(
                name=packed.pack.name,
                profile=open_files(packed.pack).signature.profile,
                images=tuple(
                    ReleasedImage(labels=labels, jobs=jobs, digest=digest, verdict=verdict)
                    for labels, jobs, (digest, verdict) in image_rows(packed.records, _image)
                ),
            )
            for packed in packs
        ),
    )


def _image(record: ImageRecord) -> tuple[str, ReleasedVerdict | None]:
    verdict = record.verdict
    if verdict is None or verdict.digest != record.digest:
        return record.digest, None
    # processors differ far behind the second decimal
    worst = round(verdict.worst, 2) if math.isfinite(verdict.worst) else None
    same = {name: getattr(verdict, name) for name in ("outcome", "cases", "runs")}
    return record.digest, ReleasedVerdict(worst=worst, tools=verdict.verifier_digest, **same)


def image_rows(
    records: Iterable[ImageRecord], content: Callable[[ImageRecord], _T]
) -> list[tuple[tuple[str, ...], tuple[str, ...], _T]]:
    """Labels, job keys and `content` of each distinct content; records in any order give equal rows."""
    jobs: dict[_T, list[tuple[str, str]]] = {}
    for record in records:
        jobs.setdefault(content(record), []).append((record.label, record.key))
    rows = []
    for value in sorted(jobs, key=lambda value: (min(jobs[value]), repr(value))):
        labels, keys = zip(*sorted(jobs[value]), strict=True)
        rows.append((labels, keys, value))
    return rows


def json_document(value: object) -> bytes:
    """A JSON file in the form of a release's documents."""
    return (json.dumps(value, indent=1) + "\n").encode("ascii")


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


_Tools = dict[str, Text | tuple[Text | tuple[Text, Text], ...]]


class ReleaseDescription(Part):
    """The document."""

    format: Literal[1] = 1
    release: Annotated[str, Field(pattern=RELEASE_NAME)]
    origin: dict[str, Text | int | tuple[Text, ...] | _Tools]
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
    described = asdict(origin)
    del described["tools"]["toolchain"]
    return ReleaseDescription(
        release=origin.release,
        origin=described,
        toolchain=origin.tools.toolchain,
        files=tuple(sorted(files, key=lambda file: file.name)),
        packs=tuple(_described(plan, rows[plan.pack], resources[plan.pack]) for plan in plans),
    )


def _described(plan: Plan, row: PackContents, resources: Mapping[str, Resources]) -> DescribedPack:
    jobs = {job.key: job for job in plan.jobs}
    made = Counter(key for image in row.images for key in image.jobs)
    if made != Counter(list(jobs)) or not {image.digest for image in row.images} <= resources.keys():
        raise ReleaseError(f"{plan.pack}: the images are not those of the plan, or have no resources")

    def job(key: str) -> DescribedJob:
        fields = {name: value for name, value in asdict(jobs[key]).items() if name not in _NOT_IN_KEY}
        return DescribedJob(key=key, label=jobs[key].label, inputs=fields)

    images = (
        DescribedImage(
            digest=image.digest,
            resources=resources[image.digest],
            verdict=image.verdict,
            jobs=tuple(map(job, image.jobs)),
        )
        for image in row.images
    )
    return DescribedPack(name=plan.pack, archs=plan.archs, profile=plan.profile, images=tuple(images))
