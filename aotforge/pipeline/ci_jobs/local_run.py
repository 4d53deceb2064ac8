"""Any job of continuous integration on this machine: a clean clone of HEAD, the same command line, the files of the jobs that it needs.

Layout of the work folder, below `<commit>/`: `artefacts/<name>/` what finished jobs handed on, `done/<job>.json` what each was made from,
`jobs/<job>/checkout` and `jobs/<job>/cache` while it runs and after a failure. A finished job is not run again as long as its command, what it
needs and its files are the same; one that was stopped goes on from its cache.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.files import output_lock, staged_folder, write_atomic
from aotforge.base.git import OF_A_REPOSITORY
from aotforge.errors import ShardError
from aotforge.formats.archive import sha256_file
from aotforge.pipeline.ci_jobs.jobs import CiJob, find_job
from aotforge.pipeline.ci_jobs.revision import git
from aotforge.pipeline.ci_jobs.summary import summary

_OURS = ("AOTFORGE_", "AOTRITON_", "TRITON_", "GITHUB_", "PYTHON", "INVOKE_")
_KEPT = {"AOTFORGE_ZSTD_SOURCE", "AOTFORGE_PYTHON"}


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """`root` is the checkout whose HEAD is built, `folder` keeps what jobs make, `home` has the environment (AOTFORGE_HOME).

    `cache`: compiled images to start with; None gives every job a cache of its own, empty as on a new runner. `needs`: run what the job needs
    first where it has not run. `environment` is the caller's.
    """

    root: Path
    folder: Path
    home: Path
    cache: Path | None
    needs: bool
    environment: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """How a job ended. `code` is its command's exit status; `fresh` is False when it had run before; `summary` in Markdown."""

    job: CiJob
    code: int
    fresh: bool
    summary: str


def run_job(
    request: RunRequest, jobs: Sequence[CiJob], name: str, *, on_start: Callable[[CiJob], None]
) -> tuple[RunResult, ...]:
    """Run a job, and first those that it needs if that is asked for; stops at the first that fails.

    Its output goes where this process' does. Raises UnknownNameError, ShardError when the files of a needed job are not there,
    OutputBusyError while another run has the job, OutputError.
    """
    job = find_job(jobs, name)
    results: list[RunResult] = []
    wanted = [find_job(jobs, need) for need in job.needs] if request.needs else []
    for one in (*wanted, job):
        result = _Run(request, jobs, one).run(on_start)
        results.append(result)
        if result.code:
            break
    return tuple(results)


class _Run:
    """One job of one commit."""

    def __init__(self, request: RunRequest, jobs: Sequence[CiJob], job: CiJob) -> None:
        self._request, self._job = request, job
        self._commit = git(request.root, "rev-parse", "HEAD").decode().strip()
        self._work = request.folder / self._commit[:16]
        self._needs = [find_job(jobs, need) for need in job.needs]

    def run(self, on_start: Callable[[CiJob], None]) -> RunResult:
        place = self._work / "jobs" / self._job.name
        with output_lock(place) as lock:
            made_from = self._made_from()
            if (told := self._finished(made_from)) is not None:
                return RunResult(job=self._job, code=0, fresh=False, summary=told)
            on_start(self._job)
            checkout = place / "checkout"
            self._clone(checkout)
            for need in self._needs:
                shutil.copytree(self._artefact(need), checkout / self._job.inputs, dirs_exist_ok=True)
            began = time.monotonic()
            # the job holds the lock with us: when this process is killed it works on, and no other may take its checkout away
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", self._job.line], cwd=checkout, env=self._environment(place), check=False,
                pass_fds=(lock,),
            )  # fmt: skip
            seconds = time.monotonic() - began
            if done.returncode:
                return RunResult(job=self._job, code=done.returncode, fresh=True, summary="")
            told = self._keep(checkout, made_from, seconds)
            shutil.rmtree(place, ignore_errors=True)
            return RunResult(job=self._job, code=0, fresh=True, summary=told)

    def _made_from(self) -> str:
        """SHA-256 of all that the job depends on. Raises ShardError when a needed job's files are not there."""
        lacking = [need.name for need in self._needs if not self._record(need).is_file() or not self._artefact(need).is_dir()]  # fmt: skip
        if lacking:
            raise ShardError(
                f"{self._job.name} needs what {', '.join(lacking)} make{'' if len(lacking) > 1 else 's'}",
                cause=f"they have not run for commit {self._commit[:16]} in {self._request.folder}",
                hint="run them first, or add --needs",
            )
        found = {need.name: _digests(self._artefact(need)) for need in self._needs}
        text = json.dumps([self._commit, self._job.command, self._job.output, found], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _finished(self, made_from: str) -> str | None:
        """The summary of an earlier run that made exactly this, its files being intact."""
        try:
            said = json.loads(self._record(self._job).read_bytes())
            same = said["made_from"] == made_from and said["files"] == self._files()
            return str(said["summary"]) if same else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _files(self) -> dict[str, str]:
        return _digests(self._artefact(self._job)) if self._job.output else {}

    def _clone(self, checkout: Path) -> None:
        shutil.rmtree(checkout, ignore_errors=True)
        checkout.parent.mkdir(parents=True, exist_ok=True)
        # objects are linked, not copied; files are HEAD's and nothing else's
        git(
            self._request.root,
            "clone",
            "--quiet",
            "--no-checkout",
            "--",
            str(self._request.root),
            str(checkout),
        )
        git(checkout, "-c", "advice.detachedHead=false", "checkout", "--quiet", "--detach", self._commit)

    def _environment(self, place: Path) -> dict[str, str]:
        caller = self._request.environment
        dropped = {k for k in caller if k.startswith(_OURS) or k in OF_A_REPOSITORY} - _KEPT
        kept = {k: v for k, v in caller.items() if k not in dropped}
        cache = self._request.cache or place / "cache"
        return kept | {"CI": "true", "AOTFORGE_HOME": str(self._request.home), "AOTFORGE_CACHE": str(cache)}

    def _keep(self, checkout: Path, made_from: str, seconds: float) -> str:
        """Put what the job made where the next ones find it, then note that it is done."""
        told = f"### {self._job.name}\n\npassed in {seconds:.0f} s\n"
        if self._job.output:
            made = checkout / self._job.output
            told = summary(self._job.name, made, seconds)
            with staged_folder(self._artefact(self._job)) as staged:
                for path in sorted(made.rglob("*")):
                    # as upload-artifact: no hidden files
                    name = path.relative_to(made)
                    if path.is_file() and not any(part.startswith(".") for part in name.parts):
                        (staged / name).parent.mkdir(parents=True, exist_ok=True)
                        shutil.copyfile(path, staged / name)
        said = {"made_from": made_from, "files": self._files(), "summary": told, "seconds": round(seconds, 1)}
        write_atomic(self._record(self._job), (json.dumps(said, indent=1) + "\n").encode())
        return told

    def _record(self, job: CiJob) -> Path:
        return self._work / "done" / f"{job.name}.json"

    def _artefact(self, job: CiJob) -> Path:
        return self._work / "artefacts" / job.artefact


def _digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): sha256_file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
