"""The jobs of a checkout, and their JSON forms for programs and for a GitHub workflow."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import get_args

from aotforge.errors import UnknownNameError, suggest
from aotforge.pipeline.ci_jobs.changes import Affected, affected_since
from aotforge.pipeline.ci_jobs.ci_manifest import Executor, load_ci_manifest
from aotforge.pipeline.ci_jobs.jobs import CiJob, Kind, make_jobs
from aotforge.pipeline.images import by_pack
from aotforge.pipeline.requests import CiRequest
from aotforge.plan.planner import plan_project

GROUPS: dict[str, tuple[Kind, ...]] = {
    "checks": ("check",),
    "builds": ("runtime", "images"),
    "release": ("release",),
}
"""Matrices of the workflow with their kinds of jobs; jobs of a matrix do not need each other."""


def plan_jobs(request: CiRequest) -> tuple[tuple[CiJob, ...], Affected]:
    """The jobs of a request, and the effect of the change that selects them.

    Raises ManifestError, UnknownNameError, ShardError and what `plan_project` raises.
    """
    root = request.root
    manifest = load_ci_manifest(root / "manifests")
    if request.executor:
        known = get_args(Executor)
        if request.executor not in known:
            raise UnknownNameError(
                f"unknown executor {request.executor}", hint=suggest(request.executor, known)
            )
        manifest = manifest.model_copy(update={"executor": request.executor})
    archs, profile = request.archs or manifest.archs, request.profile or manifest.profile
    plans = [plan_project(root, archs=group, profile=profile) for group in by_pack(root, archs)]
    if request.changed_since:
        affected = affected_since(root, request.changed_since, archs, profile)
    else:
        affected = Affected(packs=frozenset(plan.pack for plan in plans), runtime=True)
    return make_jobs(manifest, profile, plans, affected, shards=request.shards), affected


def format_jobs(jobs: Sequence[CiJob], affected: Affected, form: str) -> str:
    """The jobs as `github` or `json`. Raises UnknownNameError."""
    if form == "github":
        return matrix_github(jobs)
    if form == "json":
        return matrix_json(jobs, affected.reasons)
    raise UnknownNameError(f"unknown format {form}", hint=suggest(form, ("github", "json")))


def matrix_json(jobs: Sequence[CiJob], reasons: Sequence[str]) -> str:
    """`{"jobs": [{..., "line": the command for a shell}], "reasons": [...]}`."""
    rows = [{**asdict(job), "line": job.line} for job in jobs]
    return json.dumps({"jobs": rows, "reasons": list(reasons)}, indent=1)


def matrix_github(jobs: Sequence[CiJob]) -> str:
    """Lines for GITHUB_OUTPUT: every group's jobs as a JSON list on one line, an empty list for no jobs."""
    lines = []
    for group, kinds in GROUPS.items():
        rows = [
            {
                "name": job.name,
                "command": job.line,
                "artefact": job.artefact,
                "output": job.output,
                "timeout": job.timeout,
                "packages": " ".join(job.packages),
            }
            for job in jobs
            if job.kind in kinds
        ]
        lines.append(f"{group}={json.dumps(rows, separators=(',', ':'))}")
    return "\n".join(lines)
