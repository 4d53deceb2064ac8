"""`release.json`: everything that a program may want to know of a release, in one file of a documented form.

    {"format": 1, "release": ..., "origin": {...}, "files": [{"name", "size", "sha256", "tar_sha256", "compressor"}],
     "toolchain": {...}, "packs": [{"name", "archs", "profile", "images": [
        {"digest", "resources": {...}, "verdict": {...}, "jobs": [{"key", "label", "inputs": {...}}]}]}]}

`inputs` are the fields that a job's key hashes (`aotforge.plan.model.CompileJob`), without the toolchain, which all share.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aotforge.errors import ReleaseError
from aotforge.plan.model import CompileJob, Plan
from aotforge.release.attestations import FileFacts, Origin
from aotforge.release.reader import ReleasedPack

FORMAT = 1
_INPUTS = (
    "family",
    "kernel",
    "source",
    "function",
    "source_digest",
    "signature",
    "constants",
    "hints",
    "options",
)


def release_json_bytes(
    origin: Origin,
    *,
    plans: Sequence[Plan],
    packs: Iterable[ReleasedPack],
    manifest: Mapping[str, Any],
    files: Iterable[FileFacts],
) -> bytes:
    """The document's bytes; equal arguments give equal bytes. `manifest` is the release's MANIFEST.json.

    Raises ReleaseError when plans, packs and manifest do not speak of the same images.
    """
    resources = {one.pack.name: one.resources for one in packs}
    rows = {pack["name"]: pack for pack in manifest["packs"]}
    if not set(rows) == set(resources) == {plan.pack for plan in plans}:
        raise ReleaseError(
            f"plans are for {sorted(plan.pack for plan in plans)}, the release holds {sorted(rows)}"
        )
    tools = asdict(origin.tools)
    toolchain = tools.pop("toolchain")
    document = {
        "format": FORMAT,
        "release": origin.release,
        "origin": asdict(origin) | {"tools": tools},
        "toolchain": toolchain,
        "files": [asdict(file) for file in sorted(files, key=lambda file: file.name)],
        "packs": [
            {
                "name": plan.pack,
                "archs": plan.archs,
                "profile": plan.profile,
                "images": _images(plan, rows[plan.pack], resources[plan.pack]),
            }
            for plan in plans
        ],
    }
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode("utf-8")


def _images(plan: Plan, row: Mapping[str, Any], resources: Mapping[str, Any]) -> list[dict[str, Any]]:
    jobs = {job.key: job for job in plan.jobs}
    images = []
    for image in row["images"]:
        unplanned = [key for key in image["jobs"] if key not in jobs]
        if unplanned or image["digest"] not in resources:
            raise ReleaseError(f"{plan.pack}: image {image['digest']} is not the plan's, or has no figures")
        images.append(
            {
                "digest": image["digest"],
                "resources": asdict(resources[image["digest"]]),
                "verdict": image["verdict"],
                "jobs": [_job(jobs.pop(key)) for key in image["jobs"]],
            }
        )
    if jobs:
        raise ReleaseError(
            f"{plan.pack}: {next(iter(jobs.values())).label} is planned and not in the release"
        )
    return images


def _job(job: CompileJob) -> dict[str, Any]:
    fields = {name: getattr(job, name) for name in _INPUTS} | {"chip": asdict(job.target)}
    return {"key": job.key, "label": job.label, "inputs": fields}


def load_release_json(folder: Path, name: str) -> dict[str, Any]:
    """`folder`/`name` as JSON. Raises ReleaseError when it is missing or no document of this format."""
    path = folder / name
    try:
        document = json.loads(path.read_bytes())
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']}, this program reads {FORMAT}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReleaseError(
            f"{path} cannot be used: {getattr(error, 'strerror', None) or error}",
            cause="the folder is no finished release, or one of another version of this program",
            hint="name a folder that `./dev release` made",
        ) from error
    assert isinstance(document, dict)
    return document
