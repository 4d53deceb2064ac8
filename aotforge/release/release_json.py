"""`release.json`: the machine-readable description of a release.

    {"format": 1, "release": ..., "origin": {...}, "files": [{"name", "size", "sha256", "tar_sha256", "compressor"}],
     "toolchain": {...}, "packs": [{"name", "archs", "profile", "images": [
        {"digest", "resources": {...}, "verdict": {...}, "jobs": [{"key", "label", "inputs": {...}}]}]}]}

`inputs` are the fields that a job's key hashes (`aotforge.plan.model.CompileJob`), without the shared toolchain.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from aotforge.compile.model import Resources
from aotforge.errors import ReleaseError
from aotforge.plan.model import CompileJob, Plan
from aotforge.release.contents import PackContents, ReleaseContents
from aotforge.release.model import Origin, ReleaseFile
from aotforge.release.release import DESCRIPTION_FORMAT, ReleasedPack

_NOT_IN_KEY = {"key", "label", "toolchain", "spills"}


def release_json_bytes(
    origin: Origin,
    *,
    plans: Sequence[Plan],
    packs: Iterable[ReleasedPack],
    contents: ReleaseContents,
    files: Iterable[ReleaseFile],
) -> bytes:
    """The document; equal arguments give equal bytes.

    Raises ReleaseError when plans, packs and contents list different images.
    """
    resources = {one.pack.name: one.resources for one in packs}
    rows = {pack.name: pack for pack in contents.packs}
    if not set(rows) == set(resources) == {plan.pack for plan in plans}:
        planned = sorted(plan.pack for plan in plans)
        raise ReleaseError(f"plans are for {planned}, the release holds {sorted(rows)}")
    tools = asdict(origin.tools)
    toolchain = tools.pop("toolchain")
    document = {
        "format": DESCRIPTION_FORMAT,
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


def _images(plan: Plan, row: PackContents, resources: Mapping[str, Resources]) -> list[dict[str, Any]]:
    jobs = {job.key: job for job in plan.jobs}
    images = []
    for image in row.images:
        digest = image.digest
        if not jobs.keys() >= set(image.jobs) or digest not in resources:
            raise ReleaseError(f"{plan.pack}: image {digest} is not part of the plan, or has no resources")
        made = [_job(jobs.pop(key)) for key in image.jobs]
        described = {"digest": digest, "resources": asdict(resources[digest])}
        verdict = image.verdict and image.verdict.model_dump(mode="json")
        images.append({**described, "verdict": verdict, "jobs": made})
    if jobs:
        raise ReleaseError(
            f"{plan.pack}: {next(iter(jobs.values())).label} is planned and not in the release"
        )
    return images


def _job(job: CompileJob) -> dict[str, Any]:
    fields = {name: value for name, value in asdict(job).items() if name not in _NOT_IN_KEY}
    return {"key": job.key, "label": job.label, "inputs": fields}
