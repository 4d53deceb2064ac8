"""Continuous integration: its jobs, its workflow, any job on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from aotforge.cli.command import ARCH, EXECUTOR, HOME, ROOT, door, job_count, say

if TYPE_CHECKING:
    from aotforge.pipeline.ci_jobs.ci_plan import Planned

_JOBS = {
    "arch": f"{ARCH} (default: manifests/ci.yaml)",
    "profile": "what is built (default: manifests/ci.yaml)",
    "shards": "shards per image pack (default: as many as the estimate asks for)",
    "executor": f"{EXECUTOR.partition(':')[0]} (default: manifests/ci.yaml)",
    "changed_since": "a git revision: only jobs that the difference from it can affect",
}


def _planned(
    arch: str | None, profile: str | None, shards: int, executor: str | None, changed_since: str | None
) -> Planned:
    from aotforge.pipeline.ci_jobs.ci_plan import planned  # noqa: PLC0415

    return planned(
        ROOT,
        arch=arch,
        profile=profile,
        shards=job_count(shards),
        executor=executor,
        changed_since=changed_since,
    )


@task(help={"format": "github (outputs of a job), gitlab (a child pipeline) or json", **_JOBS})
@door
def matrix(
    c: Context,
    format: str = "json",
    changed_since: str | None = None,
    arch: str | None = None,
    profile: str | None = None,
    shards: int = 0,
    executor: str | None = None,
) -> None:
    """Print the jobs: checks, runtime, images by pack and shard, release."""
    from aotforge.pipeline.ci_jobs.ci_plan import printed  # noqa: PLC0415

    found = _planned(arch, profile, shards, executor, changed_since)
    text = printed(found, format)
    for reason in found.affected.reasons:
        sys.stderr.write(f"note: {reason}\n")
    say(text)


@task(help={"check": "write nothing; fail when a workflow is not what its source makes"})
@door
def generate(c: Context, check: bool = False) -> None:
    """Write .github/workflows from ci/ and manifests/ci.yaml."""
    from aotforge.pipeline.ci_jobs.workflow import check_generated, generate  # noqa: PLC0415

    if check:
        check_generated(ROOT)
        say("every workflow is what its source makes")
        return
    changed = generate(ROOT)
    for path in changed:
        say(f"written: {path}")
    if not changed:
        say("nothing to write")


@task(
    help={
        "job": "name of a job, see ci.matrix",
        "needs": "run what it needs first, where that has not run",
        "folder": "keeps what jobs make, by commit (default: .aotforge/ci)",
        "cache": "images to start with (default: an empty cache per job, as on a new runner)",
        **_JOBS,
    }
)
@door
def run(
    c: Context,
    job: str,
    needs: bool = False,
    folder: str | None = None,
    cache: str | None = None,
    changed_since: str | None = None,
    arch: str | None = None,
    profile: str | None = None,
    shards: int = 0,
    executor: str | None = None,
) -> None:
    """Run a job as CI would: its command line in a clean clone of HEAD, with the files of the jobs that it needs."""
    from aotforge.pipeline.ci_jobs.local_run import RunRequest, run_job  # noqa: PLC0415

    found = _planned(arch, profile, shards, executor, changed_since)
    request = RunRequest(
        root=ROOT,
        folder=Path(folder).absolute() if folder else HOME / "ci",
        home=HOME.absolute(),
        cache=Path(cache).absolute() if cache else None,
        needs=needs,
        environment=dict(os.environ),
    )
    for result in run_job(request, found.jobs, job, on_start=lambda one: say(f"-- {one.name}: {one.line}")):
        if result.code:
            sys.stderr.write(f"error: job {result.job.name} ended with {result.code}; its checkout is kept\n")
            raise Exit(code=result.code)
        say(result.summary if result.fresh else f"{result.summary}\n(had run before)")


@task(
    help={
        "title": "heading, e.g. the job's name",
        "folder": "what the job made",
        "seconds": "how long it took",
    }
)
@door
def summary(c: Context, title: str, folder: str, seconds: str | None = None) -> None:
    """Print sizes, hashes and time of what a job made, in Markdown for a step summary."""
    from aotforge.pipeline.ci_jobs.summary import summary  # noqa: PLC0415

    say(summary(title, Path(folder).absolute(), float(seconds) if seconds else None).rstrip("\n"))


TASKS = (
    ("ci", "matrix", matrix),
    ("ci", "generate", generate),
    ("ci", "run", run),
    ("ci", "summary", summary),
)
