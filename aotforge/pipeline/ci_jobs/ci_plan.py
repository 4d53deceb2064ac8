"""The jobs of this checkout: manifests, plans and, if asked, a revision to compare with, brought together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from aotforge.base.architectures import load_architectures, parse_archs
from aotforge.errors import UnknownNameError, suggest
from aotforge.pipeline.build_release import by_pack
from aotforge.pipeline.ci_jobs.changes import Affected
from aotforge.pipeline.ci_jobs.ci_manifest import CiManifest, Executor, load_ci_manifest
from aotforge.pipeline.ci_jobs.jobs import CiJob, CiRequest, make_jobs
from aotforge.pipeline.ci_jobs.matrix import matrix_github, matrix_gitlab, matrix_json
from aotforge.pipeline.ci_jobs.revision import affected_since
from aotforge.plan.planner import plan_project

FORMATS = ("github", "gitlab", "json")


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The jobs, and what they were chosen by."""

    manifest: CiManifest
    jobs: tuple[CiJob, ...]
    affected: Affected


def planned(
    root: Path,
    *,
    arch: str | None = None,
    profile: str | None = None,
    shards: int | None = None,
    executor: str | None = None,
    changed_since: str | None = None,
) -> Planned:
    """The jobs for the manifest's chips and profile, or those named instead (`arch` joined by commas).

    Raises ManifestError, UnknownNameError, ShardError and what `plan_project` raises.
    """
    manifest = load_ci_manifest(root / "manifests")
    if executor:
        known = get_args(Executor)
        if executor not in known:
            raise UnknownNameError(f"unknown executor {executor}", hint=suggest(executor, known))
        manifest = manifest.model_copy(update={"executor": executor})
    archs_known = load_architectures(root / "manifests").architectures
    archs = parse_archs(arch, archs_known) if arch else manifest.archs
    request = CiRequest(archs=tuple(archs), profile=profile or manifest.profile, shards=shards)
    plans = [plan_project(root, archs=group, profile=request.profile) for group in by_pack(root, archs)]
    if changed_since:
        affected = affected_since(root, changed_since, archs, request.profile)
    else:
        affected = Affected(packs=frozenset(plan.pack for plan in plans), runtime=True)
    return Planned(manifest=manifest, jobs=make_jobs(manifest, request, plans, affected), affected=affected)


def printed(found: Planned, form: str) -> str:
    """The jobs as `form` has them. Raises UnknownNameError."""
    if form == "github":
        return matrix_github(found.jobs)
    if form == "gitlab":
        return matrix_gitlab(found.jobs, found.manifest)
    if form == "json":
        return matrix_json(found.jobs, found.affected.reasons)
    raise UnknownNameError(f"unknown format {form}", hint=suggest(form, FORMATS))
