"""Parts in, the release of one undivided build out, bit for bit. Nothing is compiled and nothing executed here."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.architectures import load_architectures
from aotforge.base.files import output_lock
from aotforge.base.progress import Observer
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import stored_images
from aotforge.errors import ShardError
from aotforge.library.interface import check_interfaces
from aotforge.pipeline.build_release import BuildRequest, chips_of, default_output, judges_of, packed
from aotforge.pipeline.shards import shard_file as archive
from aotforge.pipeline.shards.identity import identity
from aotforge.pipeline.shards.library_shard import library_identity, unpack_library
from aotforge.pipeline.shards.merge_check import Found, choose_library, choose_shards
from aotforge.pipeline.shards.shard_file import Part
from aotforge.pipeline.shards.targets import placed
from aotforge.plan.model import JobKey, Plan
from aotforge.release.assemble import assemble_release
from aotforge.release.model import PackInput, Release
from aotforge.release.overwrite_guard import check_not_verified, check_replaceable
from aotforge.release.release_manifest import ReleaseManifest, load_release_manifest, member_time
from aotforge.release.stamp import find_release, inputs_digest
from aotforge.sandbox.executors.step import RUNTIME
from aotforge.verify.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class GatherReport:
    """A release made of `parts` files."""

    plans: tuple[Plan, ...]
    parts: int
    release: Release


def gather(
    request: BuildRequest,
    folder: Path,
    *,
    observer: Observer,
) -> GatherReport:
    """Assemble the release of `request` from the parts in and below `folder`: exactly the tarballs of an undivided build.

    Raises ShardError for a part that is missing, doubled, damaged or foreign, VerifyError for an image without a passed verdict
    (unless `request.verify` is off), and what assembly raises. An earlier release stays until the new one is whole.
    """
    manifest = load_release_manifest(request.root / "manifests" / "release.yaml")
    epoch = member_time(manifest, request.environment)
    licence = (request.root / "LICENSE").read_bytes()
    executions, plans = placed(request, RUNTIME, observer=observer)
    output = request.output or default_output(request.root, plans)
    with output_lock(output / manifest.name):
        check_replaceable(manifest, output, [plan.pack for plan in plans])
    check_interfaces(request.root, plans)
    observer.stage("reading parts")
    found = read_parts(folder)
    identities = {plan.pack: identity(plan, judges_of(request, [plan])) for plan in plans}
    shards = choose_shards(found, plans, identities)
    library = choose_library(found, library_identity(request.root, executions.runtime))
    with tempfile.TemporaryDirectory(prefix="aotforge-gather-") as scratch:
        prefix, store = Path(scratch, "prefix"), Path(scratch, "cache")
        unpack_library(library, prefix)
        inputs = inputs_digest(
            manifest, plans, prefix, epoch=epoch, licence=licence, architectures=chips_of(request, plans),
            verifier=judges_of(request, plans) if request.verify else "",
        )  # fmt: skip
        release = find_release(manifest, output, inputs)
        if release is None:
            if not request.verify:
                check_not_verified(manifest, output)
            packs = [_pack(plan, shards[plan.pack], request, store, manifest, observer) for plan in plans]
            observer.stage("tarballs")
            release = assemble_release(
                manifest, packs, prefix, output=output, licence=licence, epoch=epoch, inputs=inputs,
                unverified=not request.verify,
            )  # fmt: skip
    return GatherReport(plans=plans, parts=len(found), release=release)


def read_parts(folder: Path) -> tuple[Found, ...]:
    """Every part in and below a folder, by path. Raises ShardError for a damaged one, and when there is no folder or none in it."""
    paths = sorted(path for path in folder.rglob(f"*{archive.SUFFIX}") if path.is_file())
    if not paths:
        raise ShardError(
            f"no parts in {folder}",
            cause=f"none of its files is named *{archive.SUFFIX}" if folder.is_dir() else "there is no such folder",
            hint="name the folder that the shards' files were brought to",
        )  # fmt: skip
    found = []
    for path in paths:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ShardError(f"{path} cannot be read: {error.strerror}") from error
        found.append(Found(path=path, part=archive.decode(data, path)))
    return tuple(found)


def _pack(
    plan: Plan,
    parts: Sequence[Part],
    request: BuildRequest,
    store: Path,
    manifest: ReleaseManifest,
    observer: Observer,
) -> PackInput:
    observer.stage(f"{len(plan.jobs)} images of {plan.pack} from {len(parts)} shards")
    for part in parts:
        for name, file in part.files.items():
            path = store / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content)
    with Cache(store) as cache:
        images = stored_images(
            plan, architectures=load_architectures(request.root / "manifests"), cache=cache
        )
        verdicts: Mapping[JobKey, Verdict] = {}
        if request.verify:
            from aotforge.pipeline.shards.verdict_files import kept_verdicts  # noqa: PLC0415 - heavy: the emulator's chips

            # the release gate refuses images that have none
            verdicts = kept_verdicts(plan, images, kernels_root=request.root / "kernels", cache=store)
        return packed(plan, images, manifest, verdicts)
