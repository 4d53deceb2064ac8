"""`resources.json` beside the assembly text: what every image asks of its chip, for people who tune or compare releases."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict

from aotforge.release.values import ImageRecord

FORMAT = 1


def resources_json(pack: str, records: Iterable[ImageRecord]) -> bytes:
    """The records of one pack as JSON; equal records in any order give equal bytes.

    `{"format": 1, "pack": ..., "images": [{"labels": [...], "jobs": [...], "digest": ..., <figures of Resources>}]}`.
    `labels` and `jobs` (job keys) go together; they are several when compile jobs gave the same image with the same figures.
    Units are those of `aotforge.compile.Resources`. Images are sorted by their first label.
    """
    images: dict[str, dict[str, object]] = {}
    jobs: dict[str, list[tuple[str, str]]] = {}
    for record in records:
        figures = {"digest": record.digest, **asdict(record.resources)}
        same = json.dumps(figures, sort_keys=True)
        images[same] = figures
        jobs.setdefault(same, []).append((record.label, record.key))
    rows = []
    for same in sorted(images, key=lambda same: (min(jobs[same]), same)):
        labels, keys = zip(*sorted(jobs[same]), strict=True)
        rows.append({"labels": labels, "jobs": keys, **images[same]})
    text = json.dumps({"format": FORMAT, "pack": pack, "images": rows}, indent=1)
    return (text + "\n").encode("ascii")
