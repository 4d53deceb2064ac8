"""`release.json`: the machine-readable description of a release.

    {"format": 1, "release": ..., "origin": {...}, "files": [{"name", "size", "sha256", "tar_sha256", "compressor"}],
     "toolchain": {...}, "packs": [{"name", "archs", "profile", "images": [
        {"digest", "resources": {...}, "verdict": {...}, "jobs": [{"key", "label", "inputs": {...}}]}]}]}

`inputs` are the fields that a job's key hashes (`aotforge.plan.model.CompileJob`), without the shared toolchain.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aotforge.errors import ReleaseError
from aotforge.formats.sums import SUMS, TAR_SUMS
from aotforge.formats.untrusted_file import parse_json, read_regular
from aotforge.plan.model import CompileJob, Plan
from aotforge.release.listed_files import FETCH
from aotforge.release.model import COVERAGE, RELEASE_JSON, SBOM, Origin, ReleaseFile
from aotforge.release.reader import ReleasedPack

FORMAT = 1
DESCRIBING = frozenset({TAR_SUMS, SBOM, COVERAGE, RELEASE_JSON})
"""Files that are made after those that release.json describes."""
_NOT_IN_KEY = {"key", "label", "toolchain", "spills"}


def release_json_bytes(
    origin: Origin,
    *,
    plans: Sequence[Plan],
    packs: Iterable[ReleasedPack],
    manifest: Mapping[str, Any],
    files: Iterable[ReleaseFile],
) -> bytes:
    """The document; equal arguments give equal bytes. `manifest` is the release's MANIFEST.json.

    Raises ReleaseError when plans, packs and manifest list different images.
    """
    resources = {one.pack.name: one.resources for one in packs}
    rows = {pack["name"]: pack for pack in manifest["packs"]}
    if not set(rows) == set(resources) == {plan.pack for plan in plans}:
        planned = sorted(plan.pack for plan in plans)
        raise ReleaseError(f"plans are for {planned}, the release holds {sorted(rows)}")
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
        digest = image["digest"]
        if not jobs.keys() >= set(image["jobs"]) or digest not in resources:
            raise ReleaseError(f"{plan.pack}: image {digest} is not part of the plan, or has no resources")
        made = [_job(jobs.pop(key)) for key in image["jobs"]]
        described = {"digest": digest, "resources": asdict(resources[digest])}
        images.append({**described, "verdict": image["verdict"], "jobs": made})
    if jobs:
        raise ReleaseError(
            f"{plan.pack}: {next(iter(jobs.values())).label} is planned and not in the release"
        )
    return images


def _job(job: CompileJob) -> dict[str, Any]:
    fields = {name: value for name, value in asdict(job).items() if name not in _NOT_IN_KEY}
    return {"key": job.key, "label": job.label, "inputs": fields}


def check_described_files(folder: Path, document: Mapping[str, Any], sums: Mapping[str, str]) -> None:
    """The document has the files of the sums, with their digests. Raises ReleaseError."""
    try:
        described = {str(file["name"]): file["sha256"] for file in document["files"]}
    except (KeyError, TypeError) as error:
        raise ReleaseError(f"{folder / RELEASE_JSON} has no valid files", hint=FETCH) from error
    if described != {name: digest for name, digest in sums.items() if name not in DESCRIBING}:
        raise ReleaseError(
            f"{folder / RELEASE_JSON} describes other files than {SUMS} lists",
            cause="files of two releases were mixed",
            hint=FETCH,
        )


def load_release_json(folder: Path) -> dict[str, Any]:
    """release.json in `folder`. Raises ReleaseError when it is missing or not of this format."""
    path = folder / RELEASE_JSON
    try:
        document = parse_json(read_regular(path))
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']}, this program reads {FORMAT}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReleaseError(
            f"{path} cannot be used: {getattr(error, 'strerror', None) or error}",
            cause="the folder holds no finished release, or one of another version of this program",
            hint="name a folder that `./dev release` made",
        ) from error
    assert isinstance(document, dict)
    return document
