"""The committed workflow is what its source makes, and a wrong one is found out."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from aotforge.base.yaml_reader import parse_yaml
from aotforge.errors import ManifestError, ShardError
from aotforge.pipeline.ci_jobs.ci_manifest import load_ci_manifest
from aotforge.pipeline.ci_jobs.matrix import GROUPS
from aotforge.pipeline.ci_jobs.require import complaints as unfulfilled
from aotforge.pipeline.ci_jobs.workflow import (
    check_generated,
    complaints,
    generate,
    workflows,
    write_workflow,
)
from tests.support.families import PROJECT

TEXT = (PROJECT / ".github" / "workflows" / "ci.yml").read_text()


def test_the_committed_workflows_are_what_their_sources_make() -> None:
    check_generated(PROJECT)


def test_no_push_waits_in_a_group_that_drops_what_waits() -> None:
    # each push builds only what differs from the one before: what a dropped run should have built, no later one would
    tree = parse_yaml(TEXT, Path("ci.yml")).value()
    assert tree["concurrency"]["group"].endswith("== 'pull_request' && github.ref || github.run_id }}")


def checkout(folder: Path) -> Path:
    for part in ("ci", "manifests", ".github"):
        shutil.copytree(PROJECT / part, folder / part)
    return folder


def test_every_drift_is_named_and_mended(tmp_path: Path) -> None:
    root = checkout(tmp_path)
    workflow = root / ".github" / "workflows" / "ci.yml"
    stray = workflow.with_name("old.yaml")
    assert generate(root) == ()
    workflow.write_text(TEXT + "# by hand\n")
    stray.write_text("name: old\n")
    with pytest.raises(
        ShardError, match=r"old\.yaml: has no source\n.*ci\.yml: is not what its source makes"
    ):
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
    with pytest.raises(ShardError, match="is not what its source makes"):
        check_generated(root)


def test_a_placeholder_that_nothing_stands_for_is_refused() -> None:
    manifest = load_ci_manifest(PROJECT / "manifests")
    with pytest.raises(ManifestError, match="nothing stands for <<action chekout>>") as caught:
        write_workflow("uses: <<action chekout>>\n", manifest, Path("ci/x.yml"))
    assert "action checkout" in str(caught.value)


def test_a_source_with_a_wrong_structure_is_not_written(tmp_path: Path) -> None:
    root = checkout(tmp_path)
    source = root / "ci" / "ci.yml"
    source.write_text(source.read_text().replace("needs: [plan, builds]", "needs: [plan, bilds]"))
    with pytest.raises(ManifestError, match="needs bilds, which is no other job"):
        workflows(root)


WRONG = [
    ("contents: read", "contents: write", "permissions"),
    ("needs: [plan, builds]", "needs: [plan, nothing]", "needs nothing, which is no other job"),
    ("needs: [plan]\n    if: needs.plan.outputs.b", "needs: []\n    if: needs.plan.outputs.b", "needs.plan, which it does not need"),
    ("needs.plan.outputs.release != '[]'", "needs.plan.outputs.releases != '[]'", "needs.plan.outputs.releases, which that job does not give"),
    ("steps.matrix.outputs.builds", "steps.matrx.outputs.builds", "steps.matrx"),
    ("        job: ${{ fromJSON(needs.plan.outputs.release) }}\n", "        work: [1]\n", "job release: uses matrix.job"),
    ("@de0fac2e4500dabe0009e67214ff5f5447ce83dd # v6.0.2", "@v6", "not pinned"),
    (" # v6.0.2", "", "not pinned"),
    ("pull_request:", "pull_request_target:", "secrets"),
    ("NAME: ${{ matrix.job.name }}", "TOKEN: ${{ secrets.TOKEN }}", "secrets"),
    ("    timeout-minutes: 15\n", "", "no time limit"),
    ("    if: always()\n", "", "would be skipped, and so pass"),
    ("needs: [plan, checks, builds, release]", "needs: [plan, checks, builds]", "does not need every other job"),
    ('-c "$COMMAND"', '-c "${{ matrix.job.command }}"', "an expression in a script"),
    ("persist-credentials: false", "persist-credentials: true", "keeps its credentials"),
    ("  plan:\n    runs-on", "  plan:\n    needs: [builds]\n    runs-on", "needs itself, by way of others"),
    ("concurrency:\n  group: ", "concurrency:\n  grup: ", "no concurrency group"),
    ("jobs:\n", "jobs: [\n", "no workflow"),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "said"), WRONG)
def test_a_wrong_workflow_is_found_out(right: str, wrong: str, said: str) -> None:
    assert complaints(TEXT) == []
    assert right in TEXT
    found = complaints(TEXT.replace(right, wrong, 1))
    assert any(said in one for one in found), found


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
    assert unfulfilled(needs()) == []


@pytest.mark.parametrize("result", ["failure", "cancelled", "skipped"])
@pytest.mark.parametrize("group", sorted(GROUPS))
def test_required_fails_when_a_planned_job_did_not_pass(group: str, result: str) -> None:
    assert unfulfilled(needs(**{group: result})) == [f"{group}: {result}, with 1 jobs planned"]


def test_skipped_is_right_only_when_nothing_was_planned() -> None:
    tree = needs(builds="skipped", release="skipped")
    tree["plan"] = {"result": "success", "outputs": {"checks": "[1]", "builds": "[]", "release": "[]"}}
    assert unfulfilled(tree) == []
    tree["builds"] = {"result": "success"}
    assert unfulfilled(tree) == ["builds: success, with 0 jobs planned"]


@pytest.mark.parametrize("plan", [{}, {"result": "failure"}, {"result": "skipped"}])
def test_required_fails_without_a_plan(plan: dict[str, str]) -> None:
    assert unfulfilled({**needs(), "plan": plan})[0].startswith("plan: ")


def test_required_fails_when_the_plan_says_nothing_of_a_group() -> None:
    tree = needs()
    tree["plan"] = {"result": "success", "outputs": {"checks": "[1]", "builds": ""}}
    assert [said.split(":")[0] for said in unfulfilled(tree)] == ["builds", "release"]
