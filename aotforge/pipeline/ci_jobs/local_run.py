"""A local runner for jobs of continuous integration: clone HEAD, run the command line, keep the files.

Layout of the folder, below `<commit>/`: `artefacts/<name>/` with the files of finished jobs, `jobs/<job>/checkout` and
`jobs/<job>/cache` while it runs and after a failure.
"""

import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from aotforge.base.child_processes import run_child
from aotforge.base.files import check_output_place, discard, make_folders, make_output_place, staged_folder
from aotforge.base.git import clone, first_line
from aotforge.errors import ShardError
from aotforge.pipeline.ci_jobs.changes import git
from aotforge.pipeline.ci_jobs.jobs import CiJob, find_job
from aotforge.pipeline.ci_jobs.summary import summary

_OURS = ("AOTFORGE_", "AOTRITON_", "TRITON_", "GITHUB_", "PYTHON", "INVOKE_")
_KEPT = {"AOTFORGE_ZSTD_SOURCE", "AOTFORGE_PYTHON"}


@dataclass(frozen=True, kw_only=True)
class LocalRun:
    """Runs jobs of the HEAD of the checkout `root`. `folder` keeps their files, `home` has the Python environment.

    `cache`: compiled images to start with; None gives every job an empty cache, as on a new runner.
    """

    root: Path
    folder: Path
    home: Path
    cache: Path | None
    environment: Mapping[str, str]

    def ordered(self, jobs: Sequence[CiJob], name: str, *, needs: bool) -> list[CiJob]:
        """The job, after those that it needs and whose files are missing if `needs`.

        Raises UnknownNameError; ShardError when files are missing without `needs`.
        """
        job = find_job(jobs, name)
        missing = [need for need in job.needs if not self._artefact(find_job(jobs, need)).is_dir()]
        if missing and not needs:
            raise ShardError(
                f"{name} needs the files of {', '.join(missing)}",
                cause=f"they have not run for commit {self._commit[:16]} in {self.folder}",
                hint=f"./dev ci.run --job {name} --needs",
            )
        return [*(find_job(jobs, need) for need in missing), job]

    def run(self, jobs: Sequence[CiJob], job: CiJob) -> tuple[int, str]:
        """Exit status of the job's command, and its summary in Markdown, empty after a failure.

        Its output goes where this process' does. Raises ShardError for a job without output files, OutputError.
        """
        place = self._work / "jobs" / job.name
        make_output_place(place)  # what is here is removed, and what is cloned here is executed
        for one in job.needs:
            check_output_place(self._artefact(find_job(jobs, one)) / "file")
        with suppress(OSError):
            discard(place)
        checkout = place / "checkout"
        make_folders(checkout.parent)
        if (cloned := clone(self.root, checkout)).returncode:
            raise ShardError(
                f"git cannot clone {self.root}: {first_line(cloned)}",
                hint="free some space, or name another folder",
            )
        git(checkout, "-c", "advice.detachedHead=false", "checkout", "--quiet", "--detach", self._commit)
        for need in job.needs:
            shutil.copytree(self._artefact(find_job(jobs, need)), checkout / job.inputs, dirs_exist_ok=True)
        began = time.monotonic()
        command = ["bash", "-euo", "pipefail", "-c", job.line]
        done = run_child("own task", command, given=self._given(), add=self._added(place), cwd=checkout)
        if done.returncode:
            return done.returncode, ""
        text = f"### {job.name}\n\npassed in {time.monotonic() - began:.0f} s\n"
        if job.output:
            text = summary(job.name, checkout / job.output, time.monotonic() - began)
            with staged_folder(
                self._artefact(job)
            ) as staged:  # without hidden files, as upload-artifact does
                hidden = shutil.ignore_patterns(".*")
                shutil.copytree(checkout / job.output, staged, dirs_exist_ok=True, ignore=hidden)
        shutil.rmtree(place, ignore_errors=True)
        return 0, text

    @cached_property
    def _commit(self) -> str:
        return git(self.root, "rev-parse", "HEAD").decode().strip()

    @property
    def _work(self) -> Path:
        return self.folder / self._commit[:16]

    def _artefact(self, job: CiJob) -> Path:
        return self._work / "artefacts" / job.artefact

    def _given(self) -> dict[str, str]:
        dropped = {name for name in self.environment if name.startswith(_OURS)} - _KEPT
        return {name: value for name, value in self.environment.items() if name not in dropped}

    def _added(self, place: Path) -> dict[str, str]:
        cache = self.cache or place / "cache"
        return {"CI": "true", "AOTFORGE_HOME": str(self.home), "AOTFORGE_CACHE": str(cache)}
