"""Jobs as programs read them: our own JSON, outputs of a GitHub job, a child pipeline for GitLab."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from aotforge.pipeline.ci_jobs.ci_manifest import CiManifest
from aotforge.pipeline.ci_jobs.jobs import OUT, CiJob, Kind

GROUPS: dict[str, tuple[Kind, ...]] = {
    "checks": ("check",),
    "builds": ("runtime", "images"),
    "release": ("release",),
}
"""The workflow's matrices, each with the kinds of jobs in it; jobs of one need none of the same."""


def matrix_json(jobs: Sequence[CiJob], reasons: Sequence[str]) -> str:
    """`{"jobs": [{..., "line": the command for a shell}], "reasons": [...]}`."""
    rows = [{**asdict(job), "line": job.line} for job in jobs]
    return json.dumps({"jobs": rows, "reasons": list(reasons)}, indent=1)


def matrix_github(jobs: Sequence[CiJob]) -> str:
    """Lines for GITHUB_OUTPUT: every group's jobs as a JSON list on one line, an empty one where there is nothing to do."""
    lines = []
    for group, kinds in GROUPS.items():
        rows = [
            {"name": job.name, "command": job.line, "artefact": job.artefact, "output": job.output,
             "timeout": job.timeout, "packages": " ".join(job.packages)}
            for job in jobs
            if job.kind in kinds
        ]  # fmt: skip
        lines.append(f"{group}={json.dumps(rows, separators=(',', ':'))}")
    return "\n".join(lines)


def matrix_gitlab(jobs: Sequence[CiJob], manifest: CiManifest) -> str:
    """A child pipeline; JSON, which is YAML.

    Checks and builds start at once; a release waits for the stages before it and gets all their files, which has no limit as `needs` has.
    """
    pipeline: dict[str, object] = {
        "stages": list(GROUPS),
        "default": {"image": manifest.gitlab.image, "interruptible": True},
        "workflow": {"rules": [{"when": "always"}]},
    }
    stages = {kind: group for group, kinds in GROUPS.items() for kind in kinds}
    for job in jobs:
        made: dict[str, object] = {
            "stage": stages[job.kind],
            "script": [job.line],
            "timeout": f"{job.timeout} minutes",
        }
        if job.packages:
            made["before_script"] = [
                f"apt-get update -q && apt-get install -q -y --no-install-recommends {' '.join(job.packages)}"
            ]
        if job.kind != "release":
            made["needs"] = []
        if job.output:
            keep = f"{manifest.github.retention_days} days"
            made["after_script"] = [
                f"./dev ci.summary --title {job.name} --folder {job.output} > {OUT}/{job.name}.md"
            ]
            made["artifacts"] = {"name": job.artefact, "paths": [f"{job.output}/", f"{OUT}/{job.name}.md"], "expire_in": keep}  # fmt: skip
        pipeline[job.name] = made
    return json.dumps(pipeline, indent=1)
