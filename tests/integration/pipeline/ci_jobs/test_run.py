"""Jobs run as on a runner: HEAD's files only, the needed jobs' artefacts, none of the caller's settings."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aotforge.errors import ShardError, UnknownNameError
from aotforge.pipeline.ci_jobs.jobs import CiJob
from aotforge.pipeline.ci_jobs.local_run import LocalRun
from tests.integration.pipeline.ci_jobs.test_revisions import git

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def job(name: str, script: str, *needs: str, output: str = "out") -> CiJob:
    return CiJob(
        name=name,
        kind="images",
        command=("bash", "-ec", script),
        needs=needs,
        inputs="in" if needs else "",
        output=output,
        artefact=f"part-{name}",
        executor="local",
        minutes=1,
        timeout=1,
    )


MAKE = "mkdir -p out/sub; cp README.md out/sub/made; echo x > out/.hidden"
JOBS = (
    job("one", MAKE),
    job("two", "mkdir out; env | sort > out/env; ls -A > out/files"),
    job("last", "mkdir out; cat in/sub/made in/files > out/all", "one", "two"),
    job("wrong", "mkdir out; exit 7"),
    job("after", "true", "wrong"),
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


def run(root: Path, name: str, *, needs: bool = False, **variables: str) -> list[tuple[str, int, str]]:
    """Name, exit status and summary of every job that ran."""
    runner = LocalRun(
        root=root,
        folder=root.parent / "work",
        home=root.parent / "home",
        cache=None,
        environment={"PATH": "/usr/bin:/bin", **variables},
    )
    results: list[tuple[str, int, str]] = []
    for one in runner.ordered(JOBS, name, needs=needs):
        results.append((one.name, *runner.run(JOBS, one)))
        if results[-1][1]:
            break
    return results


def names(results: list[tuple[str, int, str]]) -> list[str]:
    return [name for name, _, _ in results]


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
        AWS_SECRET_ACCESS_KEY="1",
        https_proxy="1",
    )
    assert (artefact(root, "two") / "files").read_text().split() == [".git", "README.md", "out"]
    seen = dict(line.split("=", 1) for line in (artefact(root, "two") / "env").read_text().splitlines())
    assert (
        seen["AOTFORGE_HOME"] == str(root.parent / "home")
        and seen["CI"] == "true"
        and seen["https_proxy"] == "1"
    )
    assert "AWS_SECRET_ACCESS_KEY" not in seen
    assert seen["AOTFORGE_CACHE"].endswith("/jobs/two/cache")
    assert not {"TRITON_DEBUG", "PYTHONPATH", "GITHUB_STEP_SUMMARY"} & set(seen)


def test_a_job_gets_the_files_of_those_that_it_needs(root: Path) -> None:
    with pytest.raises(ShardError, match="last needs the files of one, two"):
        run(root, "last")
    run(root, "one")
    with pytest.raises(ShardError, match="last needs the files of two"):
        run(root, "last")
    run(root, "two")
    ((_, code, summary),) = run(root, "last")
    assert code == 0 and "| all | " in summary
    assert (artefact(root, "last") / "all").read_text().startswith("read me\n")
    assert not list((root.parent / "work").glob("*/jobs/*/*"))


def test_needs_run_first_if_their_files_are_missing(root: Path) -> None:
    assert names(run(root, "last", needs=True)) == ["one", "two", "last"]
    assert names(run(root, "last", needs=True)) == ["last"]
    git(root, "commit", "-qm", "second", "--allow-empty")
    assert names(run(root, "last", needs=True)) == ["one", "two", "last"]


def test_a_run_from_a_hook_leaves_the_callers_repository_alone(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = (root / ".git" / "HEAD").read_text()
    variables = {"GIT_DIR": str(root / ".git"), "GIT_INDEX_FILE": str(root / ".git" / "index")}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    ((_, code, _),) = run(
        root, "two", GIT_DIR=variables["GIT_DIR"], GIT_INDEX_FILE=variables["GIT_INDEX_FILE"]
    )
    assert code == 0 and (root / ".git" / "HEAD").read_text() == head
    assert "GIT_" not in (artefact(root, "two") / "env").read_text()


def test_hidden_files_are_not_kept(root: Path) -> None:
    run(root, "one")
    kept = [path.relative_to(artefact(root, "one")).as_posix() for path in artefact(root, "one").rglob("*")]
    assert sorted(kept) == ["sub", "sub/made"]


def test_a_failed_job_stops_the_run_and_keeps_its_checkout(root: Path) -> None:
    assert [(name, code) for name, code, _ in run(root, "after", needs=True)] == [("wrong", 7)]
    assert list((root.parent / "work").glob("*/jobs/wrong/checkout/README.md"))
    assert not list((root.parent / "work").glob("*/artefacts/*"))


def test_a_job_without_output_files_is_refused(root: Path) -> None:
    with pytest.raises(ShardError, match="nothing to summarise"):
        run(root, "nothing")


def test_checks_have_no_output(root: Path) -> None:
    ((name, code, summary),) = run(root, "check")
    assert (name, code) == ("check", 0) and summary.startswith("### check\n")


def test_an_unknown_job_is_refused(root: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown CI job on"):
        run(root, "on")
