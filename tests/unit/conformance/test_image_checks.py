"""Checks of an image pack, on a small pack in memory: each is red for its own defect, and no other is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aotforge.compile.model import KernelImage
from aotforge.conformance.checks.images import check_pack
from aotforge.conformance.findings import Finding
from aotforge.errors import PackError, ToolchainError
from aotforge.pack.writer import write_pack
from aotforge.plan import planner
from aotforge.plan.checkout import Checkout
from aotforge.plan.model import Plan
from aotforge.release.contents import PackContents
from aotforge.release.layout import TOP
from tests.unit.pack.samples import image, sample, sha

NAME = "amd-test"
CHECKS = {
    "profile": f"{NAME} is of a profile that may be released",
    "digests": f"{NAME} holds the images that MANIFEST.json lists, by digest",
    "verdicts": f"every image of {NAME} verified",
    "texts": f"assembly text and resources of every image of {NAME}",
    "paths": f"no path or name of the build machine in an image of {NAME}",
    "planned": f"every planned image of {NAME} present, none unexpected",
}
"""All checks of a pack, in their order."""


@dataclass(kw_only=True)
class Candidate:
    """What the checks see; defects are planted by changing it."""

    plan: Plan
    images: list[KernelImage]
    rows: list[dict[str, Any]]
    texts: set[str]
    resources: list[str]
    planned: Callable[[], Plan]
    others: set[str] = field(default_factory=set)
    archived: bool = True
    development: bool = False


def candidate() -> Candidate:
    plan, images = sample()
    labels = {job.key: job.label for job in plan.jobs}
    verdict = {"outcome": "passed", "cases": ["one"], "runs": 1, "worst": 0.5, "tools": sha("tools")}
    rows = [
        {
            "digest": one.digest,
            "jobs": [one.key],
            "labels": [labels[one.key]],
            "verdict": dict(verdict),
        }
        for one in images
    ]
    digests = [one.digest for one in images]
    return Candidate(
        plan=plan, images=images, rows=rows, texts=set(digests), resources=digests, planned=lambda: plan
    )


def check(given: Candidate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    folder = tmp_path / NAME
    folder.mkdir()
    for name, data in write_pack(given.plan, given.images, release="0.0-r1").files.items():
        (folder / name).write_bytes(data)
    texts = tmp_path / "asm" / TOP / "share" / "aotriton" / "asm" / NAME
    texts.mkdir(parents=True)
    for digest in given.texts:
        (texts / f"{digest}.s").write_text("")
    for name in given.others:
        (texts / name).touch()
    rows = [{"digest": digest} for digest in given.resources]
    (texts / "resources.json").write_text(json.dumps({"images": rows}))
    other = SimpleNamespace(kind="asm", pack="other", root=tmp_path)
    archive = SimpleNamespace(kind="asm", pack=NAME if given.archived else "another", root=tmp_path / "asm")
    row = {"name": NAME, "profile": "core", "images": given.rows}
    packs = (PackContents.model_validate_json(json.dumps(row)),)
    context: Any = SimpleNamespace(
        candidate=SimpleNamespace(
            release=SimpleNamespace(contents=SimpleNamespace(packs=packs)), archives=[other, archive]
        ),
        checkout=tmp_path / "checkout",
        development=given.development,
    )

    def plan_project(checkout: Checkout, *, archs: tuple[str, ...], profile: str) -> Plan:
        assert (checkout.root, archs, profile) == (
            tmp_path / "checkout",
            given.plan.archs,
            given.plan.profile,
        )
        return given.planned()

    monkeypatch.setattr(planner, "plan_project", plan_project)
    return list(check_pack(context, NAME, folder))


def test_a_right_pack_passes_all_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = check(candidate(), tmp_path, monkeypatch)
    assert [finding.what for finding in found] == list(CHECKS.values())
    assert [finding.check for finding in found] == ["images"] * 4 + ["paths", "images"]
    assert {finding.status for finding in found} == {"passed"}, found
    count = len(sample()[1])
    assert [finding.evidence for finding in found] == [
        "core",
        f"{count} images",
        f"{count} passed verdicts",
        f"{count} texts",
        f"{count} code objects, decoded",
        f"{count} compile jobs of profile core",
    ]


def incomplete(given: Candidate) -> None:
    plan = given.plan = replace(given.plan, complete=False)
    given.planned = lambda: plan


def not_listed(given: Candidate) -> None:
    """A row of an image that the pack does not hold."""
    given.rows.append({**given.rows[0], "digest": "0" * 64})


def verdict(**changes: Any) -> Callable[[Candidate], None]:
    def change(given: Candidate) -> None:
        given.rows[3]["verdict"] = {**given.rows[3]["verdict"], **changes}

    return change


def build_path(given: Candidate) -> None:
    """The image of the first job names a folder of the machine that built it."""
    old = given.images[0]
    parameters = given.plan.kernels[0].parameters
    new = image(given.plan.jobs[0], parameters, old.binary + b"\0/home/builder/aotforge/kernels/demo.py\0")
    given.images[0] = new
    given.rows[0]["digest"] = new.digest
    given.texts ^= {old.digest, new.digest}
    given.resources[0] = new.digest


def unplanned(given: Candidate) -> None:
    """The checkout plans the same jobs, but one call has its choices in another order."""
    kernel = given.plan.kernels[0]
    first = kernel.functionals[0]
    changed = replace(first, choices=first.choices[::-1])
    kernels = (replace(kernel, functionals=(changed, *kernel.functionals[1:])), *given.plan.kernels[1:])
    other = replace(given.plan, kernels=kernels)
    given.planned = lambda: other


def unplannable(given: Candidate) -> None:
    def fail() -> Plan:
        raise PackError("rules.py does not load")

    given.planned = fail


DEFECTS: list[tuple[Callable[[Candidate], None], str, str]] = [
    (incomplete, "profile", "profile core is not complete"),
    (not_listed, "digests", f"{'0' * 64} is in MANIFEST.json and not in the pack"),
    (verdict(outcome="failed"), "verdicts", ": failed"),
    (verdict(cases=[]), "verdicts", "its verdict names no case, run or verifier"),
    (verdict(runs=0), "verdicts", "its verdict names no case, run or verifier"),
    (verdict(tools=""), "verdicts", "its verdict names no case, run or verifier"),
    (lambda given: given.rows[3].update(verdict=None), "verdicts", ": never executed"),
    (
        lambda given: given.texts.remove(given.images[0].digest),
        "texts",
        "text without image, or image without text",
    ),
    (lambda given: given.texts.add("f" * 64), "texts", "text without image, or image without text"),
    (lambda given: given.others.add("install.sh"), "texts", "install.sh is neither"),
    (lambda given: given.resources.remove(given.images[0].digest), "texts", "not the same in resources.json"),
    (lambda given: given.resources.append("f" * 64), "texts", "not the same in resources.json"),
    (lambda given: setattr(given, "archived", False), "texts", "there is no archive of texts"),
    (build_path, "paths", "/home/builder/aotforge"),
    (unplanned, "planned", "demo.first for gfx906"),
    (lambda given: given.rows[0].update(jobs=[], labels=[]), "planned", "is planned and missing"),
    (
        lambda given: given.rows[0].update(jobs=["f" * 64], labels=["demo.stray"]),
        "planned",
        "demo.stray is not planned",
    ),
    (unplannable, "planned", "this checkout cannot plan it: rules.py does not load"),
]


@pytest.mark.parametrize(("plant", "name", "evidence"), DEFECTS)
def test_each_defect_turns_one_check_red(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[Candidate], None],
    name: str,
    evidence: str,
) -> None:
    given = candidate()
    plant(given)
    found = check(given, tmp_path, monkeypatch)
    assert [finding.what for finding in found] == list(CHECKS.values())
    (red,) = [finding for finding in found if finding.status != "passed"]
    assert (red.what, red.status) == (CHECKS[name], "failed")
    assert evidence in red.evidence


def test_every_check_has_a_defect() -> None:
    assert {name for _, name, _ in DEFECTS} == set(CHECKS)


def test_an_image_without_a_row_has_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = candidate()
    row = given.rows[0]
    given.rows[1]["jobs"] += row["jobs"]
    given.rows[1]["labels"] += row["labels"]
    del given.rows[0]
    found = check(given, tmp_path, monkeypatch)
    red = {finding.what: finding.evidence for finding in found if finding.status == "failed"}
    assert red == {
        CHECKS["digests"]: f"{row['digest']} is in the pack and not in MANIFEST.json",
        CHECKS["verdicts"]: f"{row['digest']}: no verdict",
    }


def test_an_incomplete_profile_is_a_development_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = candidate()
    incomplete(given)
    given.development = True
    found = check(given, tmp_path, monkeypatch)
    assert {finding.status for finding in found} == {"passed"}
    assert found[0].what == f"{NAME}, development build"
    assert found[0].evidence == "profile core is not complete, as requested"
    complete = candidate()
    complete.development = True
    (tmp_path / "complete").mkdir()
    found = check(complete, tmp_path / "complete", monkeypatch)
    assert (found[0].what, found[0].evidence) == (f"{NAME} is of a profile that may be released", "core")


def test_other_sources_are_one_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = candidate()
    for row in given.rows:
        row["jobs"] = [sha(key) for key in row["jobs"]]
    found = check(given, tmp_path, monkeypatch)
    (red,) = [finding for finding in found if finding.status != "passed"]
    count = len(given.rows)
    assert red.evidence.startswith(f"the same {count} calls, but {count} images were compiled from sources")


def test_a_plan_without_the_compiler_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = candidate()

    def fail() -> Plan:
        raise ToolchainError("triton is not installed")

    given.planned = fail
    found = check(given, tmp_path, monkeypatch)
    (other,) = [finding for finding in found if finding.status != "passed"]
    assert (other.status, other.what, other.evidence) == (
        "not run",
        CHECKS["planned"],
        "triton is not installed",
    )


def test_a_damaged_pack_is_one_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / NAME
    folder.mkdir()
    (folder / "__signature__").write_text("{}")
    context: Any = SimpleNamespace(candidate=None)
    (found,) = check_pack(context, NAME, folder)
    assert (found.status, found.what) == ("failed", f"{NAME} is complete")
    assert "__signature__" in found.evidence
