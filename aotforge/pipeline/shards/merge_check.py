"""Checks that shard files are, together, exactly the merged build: pure functions of their content."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, ValidationError

from aotforge.base.manifest_reader import Manifest
from aotforge.base.object_cache import DamagedObjectError
from aotforge.compile.cache_entry import decode as decode_entry
from aotforge.errors import ShardError
from aotforge.pipeline.shards.shard_file import IDENTITY, IMAGES, RUNTIME, ShardArtifact, damaged, entry_name
from aotforge.pipeline.shards.split import MOST, Shard, split
from aotforge.plan.model import Plan

_LISTED = 10
_AGAIN = "./dev build --shard ... again from this checkout, or merge in the checkout that it was made from"


@dataclass(frozen=True, kw_only=True)
class FoundShard:
    """A shard artifact and its file."""

    path: Path
    artifact: ShardArtifact


class _Number(Manifest):
    number: int = Field(ge=1, le=MOST)
    count: int = Field(ge=1, le=MOST)


class _Job(Manifest):
    key: str
    label: str
    digest: str


class _ImageManifest(Manifest):
    """The manifest of an image shard."""

    kind: str
    pack: str
    archs: list[str]
    shard: _Number
    identity: dict[str, str]
    jobs: list[_Job]


@dataclass(frozen=True, kw_only=True)
class _ImageShard:
    """An image shard with its validated manifest."""

    path: Path
    artifact: ShardArtifact
    manifest: _ImageManifest

    @property
    def shard(self) -> Shard:
        return Shard(number=self.manifest.shard.number, count=self.manifest.shard.count)

    @property
    def name(self) -> str:
        return f"shard {self.shard} of {self.manifest.pack}"


def choose_library(found: Sequence[FoundShard], identity: Mapping[str, str]) -> ShardArtifact:
    """The one library shard. Raises ShardError when it is missing, duplicate, or another revision's."""
    libraries = [one for one in found if one.artifact.manifest.get("kind") == RUNTIME]
    if not libraries:
        raise ShardError(
            "the runtime is missing from the shards",
            cause="its job has not run, or its file was not copied",
            hint="./dev build --arch <the same> --shard runtime",
        )
    if len(libraries) > 1:
        raise _duplicate("the runtime", [one.path for one in libraries])
    (library,) = libraries
    if library.artifact.manifest.get("identity") != dict(identity):
        raise ShardError(
            f"{library.path} does not belong to this build: its runtime has other sources or another root filesystem",
            cause="runtime/, manifests/runtime.yaml or --executor were different",
            hint=_AGAIN,
        )
    return library.artifact


def choose_shards(
    found: Sequence[FoundShard], plans: Sequence[Plan], identities: Mapping[str, Mapping[str, str]]
) -> dict[str, tuple[ShardArtifact, ...]]:
    """Every pack's shards, which are the complete plan: same identity, each shard and each job key once.

    `identities` by pack. Raises ShardError naming the file, the shard or the jobs.
    """
    shards = []
    for one in found:
        kind = one.artifact.manifest.get("kind")
        if kind == IMAGES:
            shards.append(_validated(one))
        elif kind != RUNTIME:
            raise ShardError(
                f"{one.path} does not belong to this build: a shard of kind {kind!r}", hint=_AGAIN
            )
    packs = {plan.pack for plan in plans}
    for shard in shards:
        if shard.manifest.pack not in packs:
            raise ShardError(
                f"{shard.path} does not belong to this build: it has images of {shard.manifest.pack}, "
                f"requested are {', '.join(sorted(packs))}",
                hint="./dev build --gather with all archs (--arch a,b), or remove the file",
            )
        _check_identity(shard, identities[shard.manifest.pack])
    return {
        plan.pack: _complete(plan, [shard for shard in shards if shard.manifest.pack == plan.pack])
        for plan in plans
    }


def _validated(one: FoundShard) -> _ImageShard:
    try:
        manifest = _ImageManifest.model_validate(dict(one.artifact.manifest))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise damaged(one.path, f"{first['loc']} {first['msg']}") from None
    return _ImageShard(path=one.path, artifact=one.artifact, manifest=manifest)


def _check_identity(shard: _ImageShard, wanted: Mapping[str, str]) -> None:
    for field, meaning in IDENTITY.items():
        if (found := shard.manifest.identity.get(field)) != wanted[field]:
            raise ShardError(
                f"{shard.path} does not belong to this build: {shard.name} has another {field} ({found}) "
                f"than this build ({wanted[field]})",
                cause=meaning,
                hint=_AGAIN,
            )


def _complete(plan: Plan, shards: Sequence[_ImageShard]) -> tuple[ShardArtifact, ...]:
    """The artifacts of a pack in the order of their numbers, every check passed."""
    count = _common_count(plan, shards)
    by_number: dict[int, list[_ImageShard]] = {number: [] for number in range(1, count + 1)}
    for shard in shards:
        if shard.shard.number > count:
            raise damaged(shard.path, f"{shard.name} is beyond the last one")
        by_number[shard.shard.number].append(shard)
    for number, same in by_number.items():
        if len(same) > 1:
            raise _duplicate(f"shard {number}/{count} of {plan.pack}", [one.path for one in same])
    if missing := [number for number, same in by_number.items() if not same]:
        raise _missing(plan, missing, count)
    for shard in shards:
        _check_content(plan, shard)
    keys = [job.key for shard in shards for job in shard.manifest.jobs]
    if sorted(keys) != sorted(job.key for job in plan.jobs):
        raise ShardError(f"the shards of {plan.pack} do not have every image of the plan once", hint=_AGAIN)
    return tuple(by_number[number][0].artifact for number in sorted(by_number))


def _common_count(plan: Plan, shards: Sequence[_ImageShard]) -> int:
    counts = sorted({shard.shard.count for shard in shards})
    if len(counts) > 1:
        odd = next(shard.path.name for shard in shards if shard.shard.count == counts[-1])
        raise ShardError(
            f"the shards of {plan.pack} are of different divisions: into {' and '.join(map(str, counts))}; "
            f"{odd} is of the last one",
            cause="shards of two runs were mixed",
            hint="keep those of one run",
        )
    return counts[0] if counts else 1


def _missing(plan: Plan, missing: Sequence[int], count: int) -> ShardError:
    named = ", ".join(f"{number}/{count}" for number in missing) if count > len(missing) else "all"
    return ShardError(
        f"missing shards of {plan.pack}, profile {plan.profile}: {named}",
        cause="their jobs have not run or have failed, or their files were not copied",
        hint=f"./dev build --arch {','.join(plan.archs)} --profile {plan.profile} --shard {missing[0]}/{count} makes the first",
    )


def _check_content(plan: Plan, shard: _ImageShard) -> None:
    """Checks that a shard has exactly its images, each intact."""
    wanted = {job.key: job.label for job in split(plan.jobs, shard.shard.count)[shard.shard.number - 1]}
    listed = {job.key: job.label for job in shard.manifest.jobs}
    files = shard.artifact.files
    held = {name for name in files if name.startswith("images-")}
    if lacking := [wanted[key] for key in wanted if key not in listed or entry_name(key) not in held]:
        more = [f"... and {len(lacking) - _LISTED} more"] if len(lacking) > _LISTED else []
        labels = "".join(f"\n  {label}" for label in [*lacking[:_LISTED], *more])
        raise ShardError(
            f"{shard.path}: {shard.name} lacks {len(lacking)} of its images:{labels}", hint=_AGAIN
        )
    expected = {entry_name(key) for key in wanted}
    if len(listed) != len(shard.manifest.jobs) or listed != wanted or held != expected:
        raise ShardError(f"{shard.path}: {shard.name} has images that are not of this shard", hint=_AGAIN)
    for job in shard.manifest.jobs:
        try:
            entry = decode_entry(files[entry_name(job.key)].content, job.key)
        except DamagedObjectError as error:
            raise damaged(shard.path, f"image of {job.label}: {error}") from error
        if entry.summary.digest != job.digest:
            raise damaged(shard.path, f"image of {job.label} is not the one that the shard lists")


def _duplicate(what: str, paths: Sequence[Path]) -> ShardError:
    return ShardError(
        f"{what} exists {len(paths)} times: {', '.join(map(str, paths))}",
        cause="shards of two runs were mixed",
        hint="keep those of one run",
    )
