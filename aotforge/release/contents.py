"""`MANIFEST.json`: what a release consists of, and the verdict on every image."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from aotforge.formats.api_level import RELEASE_NAME
from aotforge.pack.reader import open_files
from aotforge.release.model import ImageRecord, PackInput

FORMAT: Literal[1] = 1
_T = TypeVar("_T")
_M = TypeVar("_M", bound=BaseModel)


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

    def encoded(self) -> bytes:
        """The file's bytes, without time or machine."""
        return json_document(self.model_dump(mode="json"))


def parse_document(data: bytes, model: type[_M]) -> _M:
    """Reads a JSON document of a release. Raises ValueError naming the first value that does not fit."""
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from None


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
        verified=all(record.passed for one in packs for record in one.records),
        development=tuple(development),
        platform=platform,
        tarballs=dict(sorted(tars.items())),
        packs=tuple(
            PackContents(
                name=one.pack.name,
                profile=open_files(one.pack).signature.profile,
                images=tuple(
                    ReleasedImage(labels=labels, jobs=jobs, digest=digest, verdict=verdict)
                    for labels, jobs, (digest, verdict) in image_rows(one.records, _image)
                ),
            )
            for one in packs
        ),
    )


def _image(record: ImageRecord) -> tuple[str, ReleasedVerdict | None]:
    verdict = record.verdict
    if verdict is None or verdict.digest != record.digest:
        return record.digest, None
    return record.digest, ReleasedVerdict(
        outcome=verdict.outcome,
        cases=verdict.cases,
        runs=verdict.runs,
        # processors differ far behind the second decimal
        worst=round(verdict.worst, 2) if math.isfinite(verdict.worst) else None,
        tools=verdict.verifier_digest,
    )


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
