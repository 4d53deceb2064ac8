"""Verification gates releases: unverified ones are marked and never replace a verified one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aotforge.errors import OutputError, VerifyError
from aotforge.release.model import ImageRecord, PackInput
from aotforge.release.release import Release
from aotforge.verify.verdict import OutputStats, Verdict
from tests.integration.release import standin
from tests.integration.release.standin import MANIFEST, content, packed

PACKED = packed()
FIRST = PACKED.records[0]


def assemble(runtime: Path, output: Path, pack: PackInput = PACKED, **more: Any) -> Release:
    return standin.assemble(runtime, output, pack, **more)


def verdict(**changes: Any) -> Verdict:
    assert FIRST.verdict
    return replace(FIRST.verdict, **changes)


def with_first(found: Verdict | None) -> PackInput:
    return replace(PACKED, records=(replace(FIRST, verdict=found), *PACKED.records[1:]))


def unexecuted(record: ImageRecord) -> ImageRecord:
    return replace(record, verdict=None)


UNVERIFIED = replace(PACKED, records=tuple(map(unexecuted, PACKED.records)))


def manifest_of(release: Release) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((release.folder / "MANIFEST.json").read_bytes())
    return found


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (None, "not executed"),
        (verdict(outcome="failed", failure="ragged: Out is wrong\nmore"), "ragged: Out is wrong"),
        (verdict(outcome="unverified"), "no case is dispatched"),
        (verdict(digest="0" * 64), "the verdict is about another image"),
    ],
)
def test_an_image_without_a_passed_verdict_is_refused(
    runtime: Path, tmp_path: Path, found: Verdict | None, reason: str
) -> None:
    old = content(assemble(runtime, tmp_path / "dist").folder)
    with pytest.raises(VerifyError) as caught:
        assemble(runtime, tmp_path / "dist", with_first(found), inputs="2")
    assert caught.value.exit_code == 1
    assert f"{FIRST.label}: {reason}" in caught.value.what
    assert f"1 of {len(PACKED.records)} images" in caught.value.what
    assert "--no-verify" in caught.value.hint
    assert content(tmp_path / "dist" / MANIFEST.name) == old
    assert not list((tmp_path / "dist").glob(".*.staged*"))


def test_the_manifest_has_the_verdict_of_every_image(runtime: Path, tmp_path: Path) -> None:
    stats = OutputStats(
        name="Out", tensor=0.61803, element=0.2, tile=0.1, error=1e-3, allowed=2e-3, at="ragged"
    )
    release = assemble(
        runtime, tmp_path / "dist", with_first(verdict(outputs=(stats,), seconds=1.5, cached=True))
    )
    manifest = manifest_of(release)
    assert release.contents.verified and manifest["verified"] is True and manifest["development"] == []
    (pack,) = manifest["packs"]
    assert (pack["name"], manifest["release"]) == ("amd-test", MANIFEST.name)
    rows = {label: row for row in pack["images"] for label in row["labels"]}
    assert set(rows) == {record.label for record in PACKED.records}
    wanted = {"outcome": "passed", "cases": ["ragged"], "runs": 2, "worst": 0.62, "tools": "t" * 64}
    assert rows[FIRST.label]["verdict"] == wanted
    assert {row["digest"] for row in rows.values()} == {record.digest for record in PACKED.records}
    sums = (release.folder / "SHA256SUMS.uncompressed").read_text()
    tars = {line.split("  ")[1]: line.split("  ")[0] for line in sums.splitlines()}
    assert tars.pop("MANIFEST.json") == content(release.folder)["MANIFEST.json"]
    assert manifest["tarballs"] == tars


def test_verdicts_hold_nothing_of_the_run(runtime: Path, tmp_path: Path) -> None:
    one = assemble(runtime, tmp_path / "a", with_first(verdict(seconds=1.0, cached=False)))
    two = assemble(runtime, tmp_path / "b", with_first(verdict(seconds=2.0, cached=True)))
    assert content(one.folder) == content(two.folder)


@pytest.mark.parametrize("pack", [UNVERIFIED, with_first(None), with_first(verdict(outcome="failed"))])
def test_an_unverified_release_is_marked_everywhere(runtime: Path, tmp_path: Path, pack: PackInput) -> None:
    release = assemble(runtime, tmp_path / "dist", pack, unverified=True)
    lacking = sum(r.verdict is None or r.verdict.outcome != "passed" for r in pack.records)
    reason = f"{lacking} of {len(pack.records)} images of amd-test are not verified: nothing executed them"
    assert release.contents.development == (reason,)
    assert not release.contents.verified
    manifest = manifest_of(release)
    assert manifest["verified"] is False and manifest["development"] == [reason]
    for row in manifest["packs"][0]["images"]:
        claimed = row["verdict"] is not None and row["verdict"]["outcome"] == "passed"
        assert claimed == (pack is not UNVERIFIED and FIRST.label not in row["labels"])


def test_a_verified_release_is_not_replaced_by_an_unverified_one(runtime: Path, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    old = content(assemble(runtime, dist).folder)
    with pytest.raises(OutputError, match="have all passed verification") as caught:
        assemble(runtime, dist, UNVERIFIED, inputs="2", unverified=True)
    assert "--output" in caught.value.hint
    # whatever the stamp holds, and also when there is none
    (dist / f".{MANIFEST.name}.stamp.json").unlink()
    with pytest.raises(OutputError):
        assemble(runtime, dist, UNVERIFIED, inputs="2", unverified=True)
    assert content(dist / MANIFEST.name) == old


def test_an_unverified_release_gives_way(runtime: Path, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    assert not assemble(runtime, dist, UNVERIFIED, inputs="2", unverified=True).contents.verified
    again = assemble(runtime, dist, UNVERIFIED, inputs="2", unverified=True)
    assert (again.fresh, again.contents.verified) == (False, False)
    assert assemble(runtime, dist, UNVERIFIED, inputs="3", unverified=True).fresh
    release = assemble(runtime, dist)
    assert (release.fresh, release.contents.verified) == (True, True)
    again = assemble(runtime, dist)
    assert (again.fresh, again.contents.verified) == (False, True)


@pytest.mark.parametrize("damage", [lambda _: b"", lambda _: b"[]", lambda data: data[:-20]])
def test_a_damaged_manifest_protects_nothing(
    runtime: Path, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    file = assemble(runtime, tmp_path / "dist").folder / "MANIFEST.json"
    file.write_bytes(damage(file.read_bytes()))
    assert assemble(runtime, tmp_path / "dist", UNVERIFIED, inputs="2", unverified=True).fresh
