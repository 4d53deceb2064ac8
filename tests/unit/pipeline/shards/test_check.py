"""Shards make a build only when they are all of it, once, intact and of one kind."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotforge.errors import ShardError
from aotforge.pipeline.shards.merge_check import FoundShard, choose_library, choose_shards
from aotforge.pipeline.shards.shard_file import IDENTITY, ShardArtifact, entry_name, identity
from aotforge.pipeline.shards.split import split
from aotforge.plan.model import Plan
from aotforge.plan.planner import plan_project
from tests.support.families import PROJECT
from tests.support.shards import VERIFIER, entry_of, shard_of, shards_of, with_file

PLAN = plan_project(PROJECT, archs=["gfx908"], profile="smoke")
OTHER = plan_project(PROJECT, archs=["gfx90a"], profile="smoke")
IDENTITIES = {plan.pack: identity(plan, VERIFIER) for plan in (PLAN, OTHER)}


def choose(found: list[FoundShard], *plans: Plan) -> dict[str, tuple[ShardArtifact, ...]]:
    chosen = plans or (PLAN,)
    return choose_shards(found, chosen, {plan.pack: IDENTITIES[plan.pack] for plan in chosen})


@cache
def shards(count: int) -> tuple[FoundShard, ...]:
    """All shards of PLAN, made once."""
    return tuple(shards_of(PLAN, count))


@settings(max_examples=25)
@given(count=st.integers(1, 12), data=st.data())
def test_all_shards_in_any_order_are_the_plan(count: int, data: st.DataObject) -> None:
    found = data.draw(st.permutations(shards(count)))
    parts = choose(found)[PLAN.pack]
    assert [part.manifest["shard"]["number"] for part in parts] == list(range(1, count + 1))
    assert {name for part in parts for name in part.files} == {entry_name(job.key) for job in PLAN.jobs}


def test_two_packs_may_be_divided_differently() -> None:
    chosen = choose([*shards_of(OTHER, 3), *shards_of(PLAN, 2)], PLAN, OTHER)
    assert {pack: len(parts) for pack, parts in chosen.items()} == {"amd-gfx908": 2, "amd-gfx90a": 3}


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_a_missing_shard_is_named(gone: int) -> None:
    with pytest.raises(
        ShardError, match=rf"missing shards of amd-gfx908, profile smoke: {gone}/3\n"
    ) as caught:
        choose([one for one in shards_of(PLAN, 3) if f"-{gone}of3" not in one.path.name])
    assert f"--arch gfx908 --profile smoke --shard {gone}/3" in str(caught.value)


def test_a_pack_without_any_shard_is_named() -> None:
    with pytest.raises(ShardError, match="missing shards of amd-gfx90a, profile smoke: all"):
        choose(shards_of(PLAN, 2), PLAN, OTHER)


@settings(max_examples=25)
@given(count=st.integers(1, 6), data=st.data())
def test_a_duplicate_shard_is_refused_with_both_files(count: int, data: st.DataObject) -> None:
    found = shards(count)
    twice = data.draw(st.sampled_from(found))
    again = replace(twice, path=Path("copy.part.tar"))
    with pytest.raises(ShardError, match=r"of amd-gfx908 exists 2 times: .*copy\.part\.tar"):
        choose(data.draw(st.permutations([*found, again])))


def test_shards_of_two_divisions_do_not_mix() -> None:
    with pytest.raises(ShardError, match="different divisions: into 2 and 3"):
        choose([shards_of(PLAN, 2)[0], shards_of(PLAN, 3)[1]])


@pytest.mark.parametrize("field", sorted(IDENTITY))
def test_a_shard_of_another_build_is_refused_by_its_difference(field: str) -> None:
    found = shards_of(PLAN, 2)
    manifest = dict(found[1].artifact.manifest)
    manifest["identity"] = {**manifest["identity"], field: "another"}
    found[1] = replace(found[1], artifact=replace(found[1].artifact, manifest=manifest))
    with pytest.raises(
        ShardError,
        match=f"2of2.part.tar does not belong to this build: shard 2/2 of amd-gfx908 has another {field} ",
    ):
        choose(found)


def test_identities_differ_with_plan_and_verifier() -> None:
    one = identity(PLAN, VERIFIER)
    compiler = replace(PLAN.toolchain, triton_version="0")
    assert one == identity(PLAN, VERIFIER)
    assert one["verifier"] != identity(PLAN, "6" * 64)["verifier"]
    assert one["plan"] != identity(OTHER, VERIFIER)["plan"]
    assert one["toolchain"] != identity(replace(PLAN, toolchain=compiler), VERIFIER)["toolchain"]


def test_images_of_a_pack_that_was_not_requested_are_refused() -> None:
    with pytest.raises(ShardError, match="has images of amd-gfx90a, requested are amd-gfx908"):
        choose([*shards_of(PLAN, 1), *shards_of(OTHER, 1)])


def test_a_shard_that_lacks_an_image_names_it() -> None:
    found = shards_of(PLAN, 2)
    job = split(PLAN.jobs, 2)[0][3]
    files = {name: file for name, file in found[0].artifact.files.items() if name != entry_name(job.key)}
    found[0] = replace(found[0], artifact=replace(found[0].artifact, files=files))
    with pytest.raises(ShardError, match="lacks 1 of its images") as caught:
        choose(found)
    assert job.label in str(caught.value)


def test_a_shard_with_the_images_of_another_is_refused() -> None:
    found = shards_of(PLAN, 2)
    strange = shard_of(PLAN, 2, 2)
    manifest = {**strange.manifest, "shard": {"number": 1, "count": 2}}
    found[0] = replace(found[0], artifact=replace(strange, manifest=manifest))
    with pytest.raises(ShardError, match=r"1of2\.part\.tar: shard 1/2 of amd-gfx908 lacks"):
        choose(found)


def test_an_image_too_many_is_refused() -> None:
    found = shards_of(PLAN, 2)
    stranger = split(PLAN.jobs, 2)[1][0]
    found[0] = with_file(found[0], entry_name(stranger.key), entry_of(stranger))
    with pytest.raises(ShardError, match="has images that are not of this shard"):
        choose(found)


def test_an_image_other_than_the_listed_one_is_refused() -> None:
    found = shards_of(PLAN, 1)
    job = PLAN.jobs[0]
    for content, message in (
        (entry_of(job, b"!"), "is not the one that the shard lists"),
        (entry_of(PLAN.jobs[1]), "is the entry of"),
    ):
        with pytest.raises(ShardError, match=message):
            choose([with_file(found[0], entry_name(job.key), content)])


def test_a_shard_with_an_invalid_manifest_is_damaged() -> None:
    for manifest in (
        {"kind": "images"},
        {**shard_of(PLAN, 1, 1).manifest, "shard": {"number": 3, "count": 2}},
    ):
        with pytest.raises(ShardError, match="is damaged"):
            choose([FoundShard(path=Path("x.part.tar"), artifact=ShardArtifact(manifest=manifest, files={}))])
    with pytest.raises(ShardError, match="a shard of kind 'others'"):
        choose(
            [
                FoundShard(
                    path=Path("x.part.tar"), artifact=ShardArtifact(manifest={"kind": "others"}, files={})
                )
            ]
        )


def test_there_is_one_runtime_and_it_is_this_checkouts() -> None:
    made = ShardArtifact(manifest={"kind": "runtime", "identity": {"sources": "1"}}, files={})
    one = FoundShard(path=Path("r.part.tar"), artifact=made)
    assert choose_library([one, *shards_of(PLAN, 1)], {"sources": "1"}) is made
    with pytest.raises(ShardError, match="the runtime is missing"):
        choose_library(shards_of(PLAN, 1), {"sources": "1"})
    with pytest.raises(ShardError, match="the runtime exists 2 times"):
        choose_library([one, one], {"sources": "1"})
    with pytest.raises(ShardError, match=r"r\.part\.tar does not belong to this build"):
        choose_library([one], {"sources": "2"})
