"""Gate that refuses releases with images without a passed verdict, or marks them as unverified."""

from __future__ import annotations

from collections.abc import Sequence

from aotforge.errors import VerifyError
from aotforge.release.model import ImageRecord, PackInput

_LISTED = 10


def passed(record: ImageRecord) -> bool:
    """True when the image was executed and passed, and the verdict belongs to exactly these bytes."""
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
        f"{len(lacking)} of {len(records)} images have no passed verdict and cannot be released\n{named}{more}",
        cause="they were not executed on the virtual GPU, or their results differ from the reference",
        hint="`./dev verify` with the same --arch and --profile reports details; --no-verify makes a development build",
    )


def unverified_reasons(packs: Sequence[PackInput]) -> tuple[str, ...]:
    """One sentence per pack with images without a passed verdict; part of a development build's description."""
    counts = [(sum(not passed(record) for record in packed.records), packed) for packed in packs]
    return tuple(
        f"{lacking} of {len(packed.records)} images of {packed.pack.name} are not verified on the virtual GPU"
        for lacking, packed in counts
        if lacking
    )


def _reason(record: ImageRecord) -> str:
    verdict = record.verdict
    if verdict is None:
        return "not executed"
    if verdict.digest != record.digest:
        return "the verdict is about another image"
    if verdict.outcome == "unverified":
        return "no case selects this image"
    return verdict.failure.partition("\n")[0] or verdict.outcome
