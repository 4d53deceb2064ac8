"""The library shard: the installed library, headers and CMake package in one file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from aotforge.base.progress import Observer
from aotforge.library.build_linux import build_runtime
from aotforge.library.interface import check_interfaces
from aotforge.library.library_build import source_digest
from aotforge.library.sources import load_runtime_manifest
from aotforge.pipeline.build_release import execution_targets
from aotforge.pipeline.images import make_plans
from aotforge.pipeline.requests import BuildRequest
from aotforge.pipeline.shards.image_shard import ShardsReport, write_shard
from aotforge.pipeline.shards.shard_file import RUNTIME as KIND
from aotforge.pipeline.shards.shard_file import ArtifactFile, ShardArtifact
from aotforge.sandbox.executors.step import RUNTIME, ExecutionTarget

PLATFORM = "linux"


def build_library_shard(request: BuildRequest, *, observer: Observer) -> ShardsReport:
    """Builds the library, or finds it in the cache, and writes it to one file in the request's output.

    Raises InterfaceError when the library does not fit the plans, and what `build_runtime` raises.
    """
    observer.stage("runtime library")
    # operators are those of the rules, whatever compiles the kernels: that root filesystem is not needed
    check_interfaces(request.root, make_plans(request))
    executions = execution_targets(request, (RUNTIME,), observer=observer)
    built = build_runtime(
        request.root,
        cache=request.cache,
        jobs=request.jobs,
        environment=request.environment,
        execution=executions.runtime,
    )
    manifest = {
        "kind": KIND,
        "platform": PLATFORM,
        "identity": library_identity(request.root, executions.runtime),
        "inputs": built.inputs,
        "compiler": built.compiler,
        "glibc": built.glibc,
        "library": built.sha256,
    }
    artifact = ShardArtifact(manifest=manifest, files=_files(built.prefix))
    what = f"runtime for {PLATFORM}, needs glibc {built.glibc}"
    return ShardsReport(written=(write_shard(request, f"{KIND}-{PLATFORM}", artifact, what),))


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
        path.parent.mkdir(parents=True, exist_ok=True)
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
