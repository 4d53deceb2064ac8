"""Jobs run as on a runner: HEAD's files only, the needed jobs' artefacts, nothing of the caller's settings; finished ones stay finished."""

from __future__ import annotations

import multiprocessing
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aotforge.errors import OutputBusyError, ShardError, UnknownNameError
from aotforge.pipeline.ci_jobs.jobs import CiJob
from aotforge.pipeline.ci_jobs.local_run import RunRequest, RunResult, run_job
from tests.integration.pipeline.ci_jobs.test_revisions import git

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def job(name: str, script: str, *needs: str, output: str = "out") -> CiJob:
    return CiJob(
        name=name, kind="images", command=("bash", "-ec", script), needs=needs, inputs="in" if needs else "", output=output,
        artefact=f"part-{name}", executor="local", minutes=1, timeout=1,
    )  # fmt: skip


UP = "../../../../.."  # from a checkout to the test's folder
MAKE = "mkdir -p out/sub; cp README.md out/sub/made; echo x > out/.hidden; date +%N > out/when"
JOBS = (
    job("one", MAKE),
    job("two", "mkdir out; env | sort > out/env; ls -A > out/files"),
    job("last", "mkdir out; cat in/sub/made in/files > out/all", "one", "two"),
    job("wrong", "mkdir out; exit 7"),
    job("nothing", "true"),
    job("check", "test -f README.md", output=""),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout with ü"
    folder.mkdir()
    (folder / "README.md").write_text("read me\n")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    (folder / "uncommitted").write_text("not there")
    return folder


def run(
    root: Path, name: str, jobs: tuple[CiJob, ...] = JOBS, *, needs: bool = False, **variables: str
) -> list[RunResult]:
    request = RunRequest(
        root=root, folder=root.parent / "work", home=root.parent / "home", cache=None, needs=needs,
        environment={"PATH": "/usr/bin:/bin", **variables},
    )  # fmt: skip
    return list(run_job(request, jobs, name, on_start=lambda _: None))


def artefact(root: Path, name: str) -> Path:
    (found,) = (root.parent / "work").glob(f"*/artefacts/part-{name}")
    return found


def test_a_job_has_heads_files_and_no_settings_of_the_callers(root: Path) -> None:
    run(
        root,
        "two",
        AOTFORGE_CACHE="/elsewhere",
        TRITON_DEBUG="1",
        PYTHONPATH="/mine",
        GITHUB_STEP_SUMMARY="/x",
        KEPT="1",
    )
    assert (artefact(root, "two") / "files").read_text().split() == [".git", "README.md", "out"]
    seen = dict(line.split("=", 1) for line in (artefact(root, "two") / "env").read_text().splitlines())
    assert seen["AOTFORGE_HOME"] == str(root.parent / "home") and seen["CI"] == "true" and seen["KEPT"] == "1"
    assert seen["AOTFORGE_CACHE"].endswith("/jobs/two/cache")
    assert not {"TRITON_DEBUG", "PYTHONPATH", "GITHUB_STEP_SUMMARY"} & set(seen)


def test_a_job_gets_the_files_of_those_that_it_needs(root: Path) -> None:
    with pytest.raises(ShardError, match="last needs what one, two make"):
        run(root, "last")
    run(root, "one")
    with pytest.raises(ShardError, match="last needs what two makes"):
        run(root, "last")
    run(root, "two")
    (result,) = run(root, "last")
    assert (result.code, result.fresh) == (0, True)
    assert (artefact(root, "last") / "all").read_text().startswith("read me\n")
    assert "| all | " in result.summary
    assert not list((root.parent / "work").glob("*/jobs/*/*"))


def test_needs_run_first_and_once(root: Path) -> None:
    assert [(r.job.name, r.fresh) for r in run(root, "last", needs=True)] == [
        ("one", True),
        ("two", True),
        ("last", True),
    ]
    assert [(r.job.name, r.fresh) for r in run(root, "last", needs=True)] == [
        ("one", False),
        ("two", False),
        ("last", False),
    ]


def test_a_finished_job_is_run_again_when_its_files_its_needs_or_its_command_changed(root: Path) -> None:
    run(root, "last", needs=True)
    (artefact(root, "one") / "when").write_text("touched")
    assert [(r.job.name, r.fresh) for r in run(root, "last", needs=True)] == [
        ("one", True),
        ("two", False),
        ("last", True),
    ]
    other = (job("one", f"{MAKE}; true"), *JOBS[1:])
    assert [r.fresh for r in run(root, "one", other)] == [True]
    git(root, "commit", "-qm", "second", "--allow-empty")
    assert [r.fresh for r in run(root, "one", other)] == [True]


def test_a_job_whose_runner_was_killed_keeps_its_checkout_until_it_ends(root: Path) -> None:
    jobs = (job("slow", f"touch {UP}/began; until [ -e {UP}/go ]; do sleep 0.05; done; {MAKE}"),)
    runner = multiprocessing.get_context("spawn").Process(target=run, args=(root, "slow", jobs))
    runner.start()
    _wait_for((root.parent / "began").exists)
    runner.kill()
    runner.join()
    with pytest.raises(OutputBusyError):
        run(root, "slow", jobs)
    (root.parent / "go").touch()
    _wait_for(lambda: bool(list((root.parent / "work").glob("*/jobs/slow/checkout/out/when"))))
    _wait_for(lambda: _code(root, jobs) == 0)


def _code(root: Path, jobs: tuple[CiJob, ...]) -> int:
    try:
        return run(root, "slow", jobs)[0].code
    except OutputBusyError:
        return -1


def _wait_for(there: Callable[[], bool]) -> None:
    for _ in range(1200):
        if there():
            return
        time.sleep(0.05)
    pytest.fail("nothing for a minute")


def test_a_run_from_a_hook_leaves_the_callers_repository_alone(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = (root / ".git" / "HEAD").read_text()
    variables = {"GIT_DIR": str(root / ".git"), "GIT_INDEX_FILE": str(root / ".git" / "index")}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (result,) = run(root, "two", GIT_DIR=variables["GIT_DIR"], GIT_INDEX_FILE=variables["GIT_INDEX_FILE"])
    assert result.code == 0 and (root / ".git" / "HEAD").read_text() == head
    assert "GIT_" not in (artefact(root, "two") / "env").read_text()


def test_hidden_files_are_not_handed_on(root: Path) -> None:
    run(root, "one")
    assert sorted(path.name for path in artefact(root, "one").rglob("*")) == ["made", "sub", "when"]


def test_a_failed_job_keeps_its_checkout_and_stops_what_needs_it(root: Path) -> None:
    jobs = (*JOBS, job("after", "true", "wrong"))
    assert [(r.job.name, r.code) for r in run(root, "after", jobs, needs=True)] == [("wrong", 7)]
    assert list((root.parent / "work").glob("*/jobs/wrong/checkout/README.md"))
    assert not list((root.parent / "work").glob("*/done/*"))


def test_a_job_that_makes_nothing_is_refused(root: Path) -> None:
    with pytest.raises(ShardError, match="nothing to summarise"):
        run(root, "nothing")


def test_checks_hand_on_nothing(root: Path) -> None:
    assert [r.fresh for r in run(root, "check")] == [True]
    assert [r.fresh for r in run(root, "check")] == [False]


def test_an_unknown_job_is_refused(root: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown CI job on"):
        run(root, "on")
