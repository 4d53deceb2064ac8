"""JSON in a release: `resources.json` beside the assembly text (what every image asks of its chip, for people who tune or compare
releases), and `MANIFEST.json` beside the tarballs (what the release is and what became of every image on the virtual GPU).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from aotforge.pack.reader import open_files
from aotforge.release.model import ImageRecord, PackInput
from aotforge.release.verdict_gate import passed

FORMAT = 1


def resources_json(pack: str, records: Iterable[ImageRecord]) -> bytes:
    """The records of one pack as JSON; equal records in any order give equal bytes.

    `{"format": 1, "pack": ..., "images": [{"labels": [...], "jobs": [...], "digest": ..., <figures of Resources>}]}`.
    `labels` and `jobs` (job keys) go together; they are several when compile jobs gave the same image with the same figures.
    Units are those of `aotforge.compile.Resources`. Images are sorted by their first label.
    """
    rows = _rows((record, {"digest": record.digest, **asdict(record.resources)}) for record in records)
    return _encoded({"format": FORMAT, "pack": pack, "images": rows})


def manifest_json(
    release: str,
    packs: Iterable[PackInput],
    *,
    platform: str,
    development: Sequence[str],
    tars: Mapping[str, str],
) -> bytes:
    """What the release says of itself; equal arguments give equal bytes, which hold no time and nothing of the machine.

    `{"format": 1, "release": ..., "verified": ..., "development": [...], "platform": ..., "tarballs": {name: SHA-256 of the tar},
    "packs": [{"name": ..., "profile": ..., "images": [{"labels": [...], "jobs": [...], "digest": ..., "verdict": {...}}]}]}`.
    `verdict` is null for an image that nobody executed; else `outcome`, the names of its `cases`, `runs` (launches), `worst` (the largest
    error as a share of what is allowed, see docs/verification.md; null when infinite) and `tools`, the SHA-256 of what judged.
    """
    packed = list(packs)
    records = [record for one in packed for record in one.records]
    return _encoded(
        {
            "format": FORMAT,
            "release": release,
            "verified": all(passed(record) for record in records),
            "development": list(development),
            "platform": platform,
            "tarballs": dict(sorted(tars.items())),
            "packs": [
                {
                    "name": one.pack.name,
                    "profile": open_files(one.pack).signature.profile,
                    "images": _rows((r, {"digest": r.digest, "verdict": _verdict(r)}) for r in one.records),
                }
                for one in packed
            ],
        }
    )


def _verdict(record: ImageRecord) -> dict[str, object] | None:
    verdict = record.verdict
    if verdict is None or verdict.digest != record.digest:
        return None
    return {
        "outcome": verdict.outcome,
        "cases": verdict.cases,
        "runs": verdict.runs,
        # two decimals: what differs between processors lies far behind them
        "worst": round(verdict.worst, 2) if math.isfinite(verdict.worst) else None,
        "tools": verdict.verifier_digest,
    }


def _rows(records: Iterable[tuple[ImageRecord, dict[str, object]]]) -> list[dict[str, object]]:
    """One row per image and what is said of it, with all of its jobs."""
    images: dict[str, dict[str, object]] = {}
    jobs: dict[str, list[tuple[str, str]]] = {}
    for record, figures in records:
        same = json.dumps(figures, sort_keys=True)
        images[same] = figures
        jobs.setdefault(same, []).append((record.label, record.key))
    rows: list[dict[str, object]] = []
    for same in sorted(images, key=lambda same: (min(jobs[same]), same)):
        labels, keys = zip(*sorted(jobs[same]), strict=True)
        rows.append({"labels": labels, "jobs": keys, **images[same]})
    return rows


def _encoded(value: object) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode("ascii")
