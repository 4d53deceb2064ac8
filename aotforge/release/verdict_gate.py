"""Verification as a gate: a release with an image that has not passed on the virtual GPU is refused, or says so."""

from __future__ import annotations

from collections.abc import Sequence

from aotforge.errors import VerifyError
from aotforge.release.model import ImageRecord, PackInput

_LISTED = 10


def passed(record: ImageRecord) -> bool:
    """The image was executed, it passed, and the verdict is about these very bytes."""
    verdict = record.verdict
    return verdict is not None and verdict.outcome == "passed" and verdict.digest == record.digest


def require_verdicts(packs: Sequence[PackInput]) -> None:
    """Raises VerifyError naming the images without a passed verdict."""
    records = [record for packed in packs for record in packed.records]
    lacking = [record for record in records if not passed(record)]
    if not lacking:
        return
    named = "\n".join(f"{record.label}: {_reason(record)}" for record in lacking[:_LISTED])
    more = f"\n... and {len(lacking) - _LISTED} more" if len(lacking) > _LISTED else ""
    raise VerifyError(
        f"{len(lacking)} of {len(records)} images have no passed verdict, so they make no release\n{named}{more}",
        cause="they were not executed on the virtual GPU, or compute something else than their reference",
        hint="`./dev verify` with the same --arch and --profile says what is wrong; --no-verify makes a development build",
    )


def unverified_reasons(packs: Sequence[PackInput]) -> tuple[str, ...]:
    """Per pack, how many of its images nobody has seen pass; what a development build says of itself."""
    reasons = []
    for packed in packs:
        lacking = sum(not passed(record) for record in packed.records)
        if lacking:
            reasons.append(
                f"{lacking} of {len(packed.records)} images of {packed.pack.name} are not verified on the virtual GPU"
            )
    return tuple(reasons)


def _reason(record: ImageRecord) -> str:
    verdict = record.verdict
    if verdict is None:
        return "not executed"
    if verdict.digest != record.digest:
        return "the verdict is about another image"
    if verdict.outcome == "unverified":
        return "no case leads to this image"
    return verdict.failure.partition("\n")[0] or verdict.outcome
