"""Continuous integration: its jobs, its workflow, any job on this machine."""

import os
import sys
from pathlib import Path
from typing import Annotated

from aotforge.cli.flags import command
from aotforge.cli.output import print_either, print_result, print_status
from aotforge.cli.settings import HOME, ROOT
from aotforge.cli.values import absolute
from aotforge.pipeline.requests import CiRequest


@command("ci.matrix")
def matrix(request: CiRequest, format: Annotated[str, "github (outputs of a job) or json"] = "json") -> None:
    """Print the jobs: checks, runtime, images by pack and shard, release."""
    from aotforge.pipeline.ci_jobs.ci_plan import format_jobs, plan_jobs

    jobs, affected = plan_jobs(request)
    text = format_jobs(jobs, affected, format)
    for reason in affected.reasons:
        print_status(f"note: {reason}")
    print_result(text)


@command("ci.generate")
def generate(
    check: Annotated[bool, "write nothing; fail when a workflow differs from its source"] = False,
) -> None:
    """Write .github/workflows from ci/ and manifests/ci.yaml."""
    from aotforge.pipeline.ci_jobs.workflow import check_generated, generate

    if check:
        check_generated(ROOT)
        print_result("every workflow matches its source")
        return
    changed = [f"written: {path}" for path in generate(ROOT)]
    print_either(None, changed or ["nothing to write"], json=False)


@command("ci.run")
def run(
    request: CiRequest,
    job: Annotated[str, "name of a job, see ci.matrix"],
    needs: Annotated[bool, "run what it needs first, if its files are missing"] = False,
    folder: Annotated[str | None, "keeps the files of jobs, by commit (default: .aotforge/ci)"] = None,
    cache: Annotated[
        str | None, "images to start with (default: an empty cache per job, as on a new runner)"
    ] = None,
) -> None:
    """Run a job as CI would: its command line in a clean clone of HEAD, with the files of the jobs that it needs."""
    from aotforge.pipeline.ci_jobs.ci_plan import plan_jobs
    from aotforge.pipeline.ci_jobs.local_run import LocalRun

    runner = LocalRun(
        root=ROOT,
        folder=absolute(folder) or HOME / "ci",
        home=HOME.absolute(),
        cache=absolute(cache),
        environment=dict(os.environ),
    )
    jobs, _ = plan_jobs(request)
    for one in runner.ordered(jobs, job, needs=needs):
        print_result(f"-- {one.name}: {one.line}")
        code, text = runner.run(jobs, one)
        if code:
            print_status(f"error: job {one.name} exited with {code}; its checkout is kept")
            sys.exit(code)
        print_result(text)


@command("ci.summary")
def summary(
    title: Annotated[str, "heading, e.g. the job's name"],
    folder: Annotated[str, "output folder of the job"],
    seconds: Annotated[str | None, "its duration"] = None,
) -> None:
    """Print sizes, hashes and time of a job's output, in Markdown for a step summary."""
    from aotforge.pipeline.ci_jobs.summary import summary

    print_result(summary(title, Path(folder).absolute(), float(seconds) if seconds else None).rstrip("\n"))
