"""`resources.json` beside the assembly texts and `MANIFEST.json` beside the tarballs, as bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from aotforge.pack.reader import open_files
from aotforge.release.model import ImageRecord, PackInput

FORMAT = 1


def resources_json(pack: str, records: Iterable[ImageRecord]) -> bytes:
    """The records of one pack; equal records in any order give equal bytes.

    `{"format": 1, "pack": ..., "images": [{"labels": [...], "jobs": [...], "digest": ..., <fields of Resources>}]}`.
    `labels` and `jobs` (job keys) correspond; several when compile jobs gave the same image with the same resources.
    Units are those of `aotforge.compile.Resources`. Images are sorted by their first label.
    """
    rows = _rows((record, {"digest": record.digest, **asdict(record.resources)}) for record in records)
    return _encoded({"format": FORMAT, "pack": pack, "images": rows})


def manifest_json(
    release: str,
    packs: Sequence[PackInput],
    platform: str,
    development: Sequence[str],
    tars: Mapping[str, str],
) -> bytes:
    """What a release consists of; equal arguments give equal bytes, which hold neither time nor machine.

    `{"format": 1, "release": ..., "verified": ..., "development": [...], "platform": ..., "tarballs": {name: SHA-256 of the tar},
    "packs": [{"name": ..., "profile": ..., "images": [{"labels": [...], "jobs": [...], "digest": ..., "verdict": {...}}]}]}`.
    `verdict` is null for an image that was not executed; else `outcome`, the names of its `cases`, `runs` (launches),
    `worst` (largest error as a share of the allowed one, see docs/verification.md; null when infinite) and `tools`, the
    verifier's SHA-256.
    """
    manifest = {
        "format": FORMAT,
        "release": release,
        "verified": all(record.passed for one in packs for record in one.records),
        "development": list(development),
        "platform": platform,
        "tarballs": dict(sorted(tars.items())),
        "packs": [
            {
                "name": one.pack.name,
                "profile": open_files(one.pack).signature.profile,
                "images": _rows((r, {"digest": r.digest, "verdict": _verdict(r)}) for r in one.records),
            }
            for one in packs
        ],
    }
    return _encoded(manifest)


def _verdict(record: ImageRecord) -> dict[str, object] | None:
    verdict = record.verdict
    if verdict is None or verdict.digest != record.digest:
        return None
    return {
        "outcome": verdict.outcome,
        "cases": verdict.cases,
        "runs": verdict.runs,
        # processors differ far behind the second decimal
        "worst": round(verdict.worst, 2) if math.isfinite(verdict.worst) else None,
        "tools": verdict.verifier_digest,
    }


def _rows(records: Iterable[tuple[ImageRecord, dict[str, object]]]) -> list[dict[str, object]]:
    """One row per image and its fields, with all of its jobs."""
    jobs: dict[str, list[tuple[str, str]]] = {}
    for record, fields in records:
        jobs.setdefault(json.dumps(fields), []).append((record.label, record.key))
    rows: list[dict[str, object]] = []
    for fields_json in sorted(jobs, key=lambda text: (min(jobs[text]), text)):
        labels, keys = zip(*sorted(jobs[fields_json]), strict=True)
        rows.append({"labels": labels, "jobs": keys, **json.loads(fields_json)})
    return rows


def _encoded(value: object) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode("ascii")
