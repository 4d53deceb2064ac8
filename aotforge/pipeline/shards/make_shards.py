"""Makes shards: part of a plan's images with their verdicts, or the library; one file each."""

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aotforge.base.files import make_folders, write_atomic
from aotforge.base.object_cache import DamagedObjectError
from aotforge.base.progress import Observer
from aotforge.compile.cache import Cache
from aotforge.compile.cache_entry import encode as encode_entry
from aotforge.compile.image_set import ImageSet
from aotforge.compile.model import KernelImage
from aotforge.errors import CacheError
from aotforge.formats.archive import sha256_file
from aotforge.library.interface import check_interfaces
from aotforge.library.library_build import source_digest
from aotforge.library.sources import load_runtime_manifest
from aotforge.pipeline.build_release import build_library, execution_targets, resolve_targets
from aotforge.pipeline.display import BuildObserver
from aotforge.pipeline.images import ImageBuilder, make_plans, plans_verifier_digest, require_executors
from aotforge.pipeline.requests import BuildRequest
from aotforge.pipeline.shards.shard_file import (
    IMAGES,
    RUNTIME,
    SUFFIX,
    ArtifactFile,
    ShardArtifact,
    encode,
    entry_name,
    identity,
)
from aotforge.pipeline.shards.split import Shard, parse_shard, split
from aotforge.pipeline.shared_cache import cluster_of, shared_objects
from aotforge.plan.model import CompileJob, JobKey, Plan
from aotforge.run.step import KERNELS, ExecutionTarget
from aotforge.run.step import RUNTIME as LIBRARY_ROOTFS
from aotforge.verify.verdict import Verdict
from aotforge.verify.verdict_store import load_verdict, store_verdict, verdict_key
from aotforge.verify.verify_plan import image_tasks

PLATFORM = "linux"


@dataclass(frozen=True, kw_only=True)
class WrittenShard:
    """A shard file and a description of its content."""

    what: str
    path: Path
    size: int


@dataclass(frozen=True, kw_only=True)
class ShardsReport:
    """Shard files that were written."""

    written: tuple[WrittenShard, ...]

    def fields(self) -> dict[str, object]:
        """JSON values."""
        return {
            "parts": [
                {"file": str(one.path), "size": one.size, "sha256": sha256_file(one.path), "what": one.what}
                for one in self.written
            ]
        }

    def lines(self) -> list[str]:
        """Lines of text."""
        return [
            line
            for one in self.written
            for line in (one.what, f"{one.size:>12,}  {one.path}", f"sha256 {sha256_file(one.path)}")
        ]


def build_shards(request: BuildRequest, shard: str, *, observer: BuildObserver) -> ShardsReport:
    """The library, or the shard NUMBER/COUNT of every pack's images. Raises ShardError, and what building these raises."""
    if shard == RUNTIME:
        return build_library_shard(request, observer=observer)
    return build_image_shards(request, parse_shard(shard), observer=observer)


def write_shard(request: BuildRequest, name: str, artifact: ShardArtifact, what: str) -> WrittenShard:
    """Writes `artifact` to the request's output, atomically. Raises OutputError."""
    path = (request.output or request.root / "releases" / "parts") / f"{name}{SUFFIX}"
    data = encode(artifact)
    write_atomic(path, data)
    return WrittenShard(what=what, path=path, size=len(data))


def build_image_shards(request: BuildRequest, shard: Shard, *, observer: BuildObserver) -> ShardsReport:
    """Compiles and verifies one shard of every pack of the request; one file each in its output.

    Raises what `build` raises for images.
    """
    executions, plans = resolve_targets(request, (KERNELS,), observer=observer)
    check_interfaces(request.root, plans)
    if request.verify:
        require_executors(plans, request.cache)
    written = []
    with (
        shared_objects(request, observer.note) as shared,
        Cache(request.cache, shared) as cache,
        cluster_of(request, shared, observer.note) as cluster,
    ):
        builder = ImageBuilder(
            request=request, observer=observer, execution=executions.kernels, shared=shared, cluster=cluster
        )
        for plan in plans:
            part = replace(plan, jobs=split(plan.jobs, shard.count)[shard.number - 1])
            observer.stage(f"shard {shard} of {plan.pack}")
            images, verdicts = builder.build(part, cache, verify=request.verify)
            files = {entry_name(job.key): ArtifactFile(content=_entry(cache, job)) for job in part.jobs}
            if request.verify:
                files |= _verdict_files(part, images, verdicts, request.kernels)
            verifier = plans_verifier_digest(request.kernels, [plan])
            manifest = shard_manifest(plan, verifier, shard, part.jobs, images)
            what = f"shard {shard} of {plan.pack}, profile {plan.profile}: {len(part.jobs)} of {len(plan.jobs)} images"
            name = f"{plan.pack}-{plan.profile}-{shard.number}of{shard.count}"
            written.append(write_shard(request, name, ShardArtifact(manifest=manifest, files=files), what))
    return ShardsReport(written=tuple(written))


def shard_manifest(
    plan: Plan, verifier: str, shard: Shard, jobs: Sequence[CompileJob], images: ImageSet
) -> dict[str, Any]:
    """Manifest of an image shard: its build, its number, and its images."""
    return {
        "kind": IMAGES,
        "pack": plan.pack,
        "archs": list(plan.archs),
        "shard": {"number": shard.number, "count": shard.count},
        "identity": identity(plan, verifier),
        "jobs": [{"key": j.key, "label": j.label, "digest": images.digest(j.key)} for j in jobs],
    }


def _entry(cache: Cache, job: CompileJob) -> bytes:
    try:
        entry, problem = cache.load(job.key), "it was removed from the cache"
    except DamagedObjectError as error:
        entry, problem = None, str(error)
    if entry is None:
        raise CacheError(f"image of {job.label}: {problem}", hint="./dev build again: it is compiled anew")
    return encode_entry(entry)


def _verdict_files(
    plan: Plan, images: ImageSet, verdicts: Mapping[JobKey, Verdict], kernels: Path
) -> dict[str, ArtifactFile]:
    """Files of the verdict store, by their paths below the cache folder."""
    with tempfile.TemporaryDirectory() as scratch:
        store = Path(scratch)
        save_verdicts(plan, images, verdicts, kernels_root=kernels, cache=store)
        return {
            path.relative_to(store).as_posix(): ArtifactFile(content=path.read_bytes())
            for path in store.rglob("*")
            if path.is_file()
        }


def save_verdicts(
    plan: Plan,
    images: Mapping[JobKey, KernelImage],
    verdicts: Mapping[JobKey, Verdict],
    *,
    kernels_root: Path,
    cache: Path,
) -> None:
    """Saves passed verdicts below `cache`, without times: equal verdicts give equal files. Raises CacheError."""
    for task in image_tasks(plan, images, kernels_root):
        verdict = verdicts[task.key]
        if verdict.outcome == "passed":
            store_verdict(cache, verdict_key(task), replace(verdict, seconds=0.0, cached=False))


def load_verdicts(
    plan: Plan, images: Mapping[JobKey, KernelImage], *, kernels_root: Path, cache: Path
) -> dict[JobKey, Verdict]:
    """Passed verdicts below `cache` for exactly these images, cases and verifier. Raises CacheError."""
    tasks = image_tasks(plan, images, kernels_root)
    found = {task.key: load_verdict(cache, verdict_key(task), task) for task in tasks}
    return {key: verdict for key, verdict in found.items() if verdict is not None}


def build_library_shard(request: BuildRequest, *, observer: Observer) -> ShardsReport:
    """Builds the library, or finds it in the cache, and writes it to one file in the request's output.

    Raises InterfaceError when the library does not fit the plans, and what `build_runtime` raises.
    """
    observer.stage("runtime library")
    # operators are those of the rules, whatever compiles the kernels: that root filesystem is not needed
    check_interfaces(request.root, make_plans(request))
    executions = execution_targets(request, (LIBRARY_ROOTFS,), observer=observer)
    with shared_objects(request, observer.note) as shared:
        built = build_library(request, executions, shared)
    manifest = {
        "kind": RUNTIME,
        "platform": PLATFORM,
        "identity": library_identity(request.root, executions.runtime),
        "inputs": built.inputs,
        "compiler": built.compiler,
        "glibc": built.glibc,
        "library": built.sha256,
    }
    artifact = ShardArtifact(manifest=manifest, files=_files(built.prefix))
    what = f"runtime for {PLATFORM}, needs glibc {built.glibc}"
    return ShardsReport(written=(write_shard(request, f"{RUNTIME}-{PLATFORM}", artifact, what),))


def library_identity(root: Path, execution: ExecutionTarget | None) -> dict[str, str]:
    """SHA-256 of the library's inputs by field; "root" is the root filesystem of its tools, empty for this machine's.

    Raises ManifestError.
    """
    rootfs = execution.rootfs if execution is not None else None
    manifest = load_runtime_manifest(root / "manifests").model_dump_json()
    return {
        "sources": source_digest(root / "runtime"),
        "manifest": hashlib.sha256(manifest.encode()).hexdigest(),
        "root": rootfs.identity if rootfs is not None else "",
    }


def unpack_library(artifact: ShardArtifact, prefix: Path) -> None:
    """Writes the files below the folder `prefix`, which must be empty."""
    for name, file in artifact.files.items():
        path = prefix / name
        make_folders(path.parent)
        if file.link:
            path.symlink_to(file.link)
        else:
            path.write_bytes(file.content)
            path.chmod(0o755 if file.executable else 0o644)


def _files(prefix: Path) -> dict[str, ArtifactFile]:
    found = {}
    for path in sorted(prefix.rglob("*")):
        name = path.relative_to(prefix).as_posix()
        if path.is_symlink():
            found[name] = ArtifactFile(link=str(path.readlink()))
        elif path.is_file():
            executable = bool(path.stat().st_mode & 0o100)
            found[name] = ArtifactFile(content=path.read_bytes(), executable=executable)
    return found
