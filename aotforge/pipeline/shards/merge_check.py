"""Whether parts are, all together, exactly the build that is asked for: a pure judgement over what they say and hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, ValidationError

from aotforge.base.manifest_reader import Manifest
from aotforge.compile.cache_entry import EntryError, decode
from aotforge.errors import ShardError
from aotforge.pipeline.shards.identity import MEANING
from aotforge.pipeline.shards.image_shard import KIND as IMAGES
from aotforge.pipeline.shards.image_shard import entry_name
from aotforge.pipeline.shards.library_shard import KIND as RUNTIME
from aotforge.pipeline.shards.shard_file import Part, damaged
from aotforge.pipeline.shards.split import MOST, Shard, split
from aotforge.plan.model import Plan

_LISTED = 10
_AGAIN = "make it again from this checkout, or gather in the checkout that it was made from"


@dataclass(frozen=True, kw_only=True)
class Found:
    """A part and the file that it was read from."""

    path: Path
    part: Part


class _Shard(Manifest):
    number: int = Field(ge=1, le=MOST)
    count: int = Field(ge=1, le=MOST)


class _Job(Manifest):
    key: str
    label: str
    digest: str


class _Images(Manifest):
    """What a part of images says of itself."""

    kind: str
    pack: str
    archs: list[str]
    shard: _Shard
    identity: dict[str, str]
    jobs: list[_Job]


def choose_library(found: Sequence[Found], identity: Mapping[str, str]) -> Part:
    """The one runtime among the parts. Raises ShardError when there is none, more than one, or another revision's."""
    libraries = [one for one in found if one.part.about.get("kind") == RUNTIME]
    if not libraries:
        raise ShardError(
            "the runtime is missing from the parts",
            cause="its job has not run, or its file was not brought along",
            hint="make it: ./dev build --arch <the same> --shard runtime",
        )
    if len(libraries) > 1:
        raise _doubled("the runtime", libraries)
    path, about = libraries[0].path, libraries[0].part.about
    if about.get("identity") != dict(identity):
        raise ShardError(
            f"{path} is foreign: its runtime was built from other sources than this checkout's, or in another root",
            cause="runtime/, manifests/runtime.yaml or --executor were others",
            hint=_AGAIN,
        )
    return libraries[0].part


def choose_shards(
    found: Sequence[Found], plans: Sequence[Plan], identities: Mapping[str, Mapping[str, str]]
) -> dict[str, tuple[Part, ...]]:
    """Every pack's shards, proven to be the whole plan: same identity, each shard once, none missing, every job key once.

    `identities` by pack. Raises ShardError naming the file, the shard or the jobs.
    """
    strangers = [one for one in found if one.part.about.get("kind") not in {IMAGES, RUNTIME}]
    for one in strangers:
        raise ShardError(f"{one.path} is foreign: a part of kind {one.part.about.get('kind')!r}", hint=_AGAIN)
    said = [(one, _said(one)) for one in found if one.part.about.get("kind") == IMAGES]
    packs = {plan.pack for plan in plans}
    for one, about in said:
        if about.pack not in packs:
            raise ShardError(
                f"{one.path} is foreign: it holds images of {about.pack}, asked for are {', '.join(sorted(packs))}",
                hint="name all chips (--arch a,b), or take the file away",
            )
        _check_identity(one.path, about, identities[about.pack])
    return {
        plan.pack: _shards_of(plan, [(one, about) for one, about in said if about.pack == plan.pack])
        for plan in plans
    }


def _said(one: Found) -> _Images:
    try:
        return _Images.model_validate(dict(one.part.about))
    except ValidationError as error:
        raise damaged(one.path, f"{error.errors()[0]['loc']} {error.errors()[0]['msg']}") from None


def _check_identity(path: Path, about: _Images, wanted: Mapping[str, str]) -> None:
    for field, meaning in MEANING.items():
        if about.identity.get(field) != wanted[field]:
            raise ShardError(
                f"{path} is foreign: shard {_name(about)} has another {field} ({about.identity.get(field)}) than this build ({wanted[field]})",
                cause=meaning,
                hint=_AGAIN,
            )


def _shards_of(plan: Plan, said: Sequence[tuple[Found, _Images]]) -> tuple[Part, ...]:
    counts = sorted({about.shard.count for _, about in said})
    if len(counts) > 1:
        odd = [one.path.name for one, about in said if about.shard.count == counts[-1]]
        raise ShardError(
            f"the shards of {plan.pack} are of different divisions: into {' and '.join(map(str, counts))}; {odd[0]} is of the last one",
            cause="parts of two runs were put together",
            hint="keep those of one run",
        )
    count = counts[0] if counts else 1
    by_number: dict[int, list[Found]] = {number: [] for number in range(1, count + 1)}
    for one, about in said:
        if about.shard.number > count:
            raise damaged(one.path, f"there is no shard {_name(about)}")
        by_number[about.shard.number].append(one)
    for number, same in by_number.items():
        if len(same) > 1:
            raise _doubled(f"shard {number}/{count} of {plan.pack}", same)
    missing = [number for number, same in by_number.items() if not same]
    if missing:
        named = ", ".join(f"{number}/{count}" for number in missing) if said else "all"
        raise ShardError(
            f"missing shards of {plan.pack}, profile {plan.profile}: {named}",
            cause="their jobs have not run or have failed, or their files were not brought along",
            hint=f"./dev build --arch {','.join(plan.archs)} --profile {plan.profile} --shard {missing[0]}/{count} makes the first",
        )
    for one, about in said:
        _check_content(plan, one, about, count)
    keys = [job.key for _, about in said for job in about.jobs]
    if sorted(keys) != sorted(job.key for job in plan.jobs):
        raise ShardError(f"the shards of {plan.pack} do not hold every image of the plan once", hint=_AGAIN)
    return tuple(by_number[number][0].part for number in sorted(by_number))


def _check_content(plan: Plan, one: Found, about: _Images, count: int) -> None:
    """The part holds the images of its shard: all of them, no others, and each intact."""
    wanted = {job.key: job.label for job in split(plan.jobs, count)[about.shard.number - 1]}
    names = {job.key: job.label for job in about.jobs}
    held = {name for name in one.part.files if name.startswith("images-")}
    lacking = [wanted[key] for key in wanted if key not in names or entry_name(key) not in held]
    if lacking:
        raise ShardError(
            f"{one.path}: shard {_name(about)} lacks {len(lacking)} of its images:\n" + _list(lacking),
            hint=_AGAIN,
        )
    if len(names) != len(about.jobs) or names != wanted or held != {entry_name(key) for key in wanted}:
        raise ShardError(
            f"{one.path}: shard {_name(about)} holds images that are not of this shard", hint=_AGAIN
        )
    for job in about.jobs:
        try:
            entry = decode(one.part.files[entry_name(job.key)].content, job.key)
        except EntryError as error:
            raise damaged(one.path, f"image of {job.label}: {error}") from error
        if entry.summary.digest != job.digest:
            raise damaged(one.path, f"image of {job.label} is not the one that the shard lists")


def _name(about: _Images) -> str:
    return f"{Shard(number=about.shard.number, count=about.shard.count)} of {about.pack}"


def _doubled(what: str, same: Sequence[Found]) -> ShardError:
    return ShardError(
        f"{what} is there {len(same)} times: {', '.join(str(one.path) for one in same)}",
        cause="parts of two runs were put together",
        hint="keep those of one run",
    )


def _list(labels: Sequence[str]) -> str:
    more = [f"  ... and {len(labels) - _LISTED} more"] if len(labels) > _LISTED else []
    return "\n".join([f"  {label}" for label in labels[:_LISTED]] + more)
