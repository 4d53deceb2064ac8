"""The committed workflow matches its source; the required job fails unless every planned job passed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from aotforge.base.manifest_reader import parse_yaml
from aotforge.errors import ManifestError, ShardError
from aotforge.pipeline.ci_jobs.ci_manifest import load_ci_manifest
from aotforge.pipeline.ci_jobs.ci_plan import GROUPS
from aotforge.pipeline.ci_jobs.require import problems
from aotforge.pipeline.ci_jobs.workflow import (
    check_generated,
    generate,
    write_workflow,
)
from tests.support.families import PROJECT

TEXT = (PROJECT / ".github" / "workflows" / "ci.yml").read_text()


def test_the_committed_workflows_match_their_sources() -> None:
    check_generated(PROJECT)


def test_no_push_waits_in_a_group_that_drops_what_waits() -> None:
    # each push builds only its difference from the one before: no later run would build what a dropped one skipped
    tree = parse_yaml(TEXT, Path("ci.yml")).value()
    assert tree["concurrency"]["group"].endswith("== 'pull_request' && github.ref || github.run_id }}")


def test_the_required_job_needs_every_other_job_and_all_have_a_time_limit() -> None:
    jobs = parse_yaml(TEXT, Path("ci.yml")).value()["jobs"]
    assert set(jobs["required"]["needs"]) == set(jobs) - {"required"}
    assert jobs["required"]["if"] == "always()"
    assert len(jobs) == 5 and all("timeout-minutes" in job for job in jobs.values())


def checkout(folder: Path) -> Path:
    for part in ("ci", "manifests", ".github"):
        shutil.copytree(PROJECT / part, folder / part)
    return folder


def test_every_drift_is_reported_and_repaired(tmp_path: Path) -> None:
    root = checkout(tmp_path)
    workflow = root / ".github" / "workflows" / "ci.yml"
    stray = workflow.with_name("old.yaml")
    assert generate(root) == ()
    workflow.write_text(TEXT + "# by hand\n")
    stray.write_text("name: old\n")
    with pytest.raises(ShardError, match=r"old\.yaml: has no source\n.*ci\.yml: differs from its source"):
        check_generated(root)
    assert {path.name for path in generate(root)} == {"ci.yml", "old.yaml"}
    assert workflow.read_text() == TEXT and not stray.exists()
    workflow.unlink()
    with pytest.raises(ShardError, match=r"ci\.yml: is missing"):
        check_generated(root)
    generate(root)
    check_generated(root)


def test_a_changed_pin_is_drift(tmp_path: Path) -> None:
    root = checkout(tmp_path)
    manifest = root / "manifests" / "ci.yaml"
    manifest.write_text(re.sub(r'commit: "\w{40}"', f'commit: "{"0" * 40}"', manifest.read_text(), count=1))
    with pytest.raises(ShardError, match="differs from its source"):
        check_generated(root)


def test_an_unknown_placeholder_is_refused() -> None:
    manifest = load_ci_manifest(PROJECT / "manifests")
    with pytest.raises(ManifestError, match="unknown placeholder <<action chekout>>") as caught:
        write_workflow("uses: <<action chekout>>\n", manifest, Path("ci/x.yml"))
    assert "action checkout" in str(caught.value)


def test_the_workflow_has_a_job_for_every_group_of_the_matrix() -> None:
    for group in GROUPS:
        assert f"\n  {group}:\n" in TEXT
        assert f"fromJSON(needs.plan.outputs.{group})" in TEXT
        assert f"{group}: ${{{{ steps.matrix.outputs.{group} }}}}" in TEXT


def needs(**changed: str) -> dict[str, object]:
    results = {"checks": "success", "builds": "success", "release": "success"} | changed
    plan = {
        "result": "success",
        "outputs": {"checks": '[{"a":1}]', "builds": '[{"a":1}]', "release": '[{"a":1}]'},
    }
    return {"plan": plan, **{name: {"result": result, "outputs": {}} for name, result in results.items()}}


def test_required_passes_when_all_has() -> None:
    assert problems(needs()) == []


@pytest.mark.parametrize("result", ["failure", "cancelled", "skipped"])
@pytest.mark.parametrize("group", sorted(GROUPS))
def test_required_fails_when_a_planned_job_did_not_pass(group: str, result: str) -> None:
    assert problems(needs(**{group: result})) == [f"{group}: {result}, with 1 jobs planned"]


def test_skipped_is_right_only_when_nothing_was_planned() -> None:
    tree = needs(builds="skipped", release="skipped")
    tree["plan"] = {"result": "success", "outputs": {"checks": "[1]", "builds": "[]", "release": "[]"}}
    assert problems(tree) == []
    tree["builds"] = {"result": "success"}
    assert problems(tree) == ["builds: success, with 0 jobs planned"]


@pytest.mark.parametrize("plan", [{}, {"result": "failure"}, {"result": "skipped"}])
def test_required_fails_without_a_plan(plan: dict[str, str]) -> None:
    assert problems({**needs(), "plan": plan})[0].startswith("plan: ")


def test_required_fails_when_the_plan_omits_a_group() -> None:
    tree = needs()
    tree["plan"] = {"result": "success", "outputs": {"checks": "[1]", "builds": ""}}
    assert [problem.split(":")[0] for problem in problems(tree)] == ["builds", "release"]
