"""The runtime as a part of a build: the installed library, headers and CMake package in one file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from aotforge.base.files import write_atomic
from aotforge.base.progress import Observer
from aotforge.library.build_linux import build_runtime
from aotforge.library.interface import check_interfaces
from aotforge.library.library_build import source_digest
from aotforge.library.sources import load_runtime_manifest
from aotforge.pipeline.build_release import BuildRequest, execution_targets, make_plans
from aotforge.pipeline.shards import shard_file as archive
from aotforge.pipeline.shards.image_shard import PartReport
from aotforge.pipeline.shards.shard_file import Part, PartFile
from aotforge.sandbox.executors.step import RUNTIME, ExecutionTarget

KIND = "runtime"
PLATFORM = "linux"
NAME = f"{KIND}-{PLATFORM}{archive.SUFFIX}"


def build_library(request: BuildRequest, *, observer: Observer) -> PartReport:
    """Build the runtime, or find it in the cache, and write it to `request.output` as one file, whole or not at all.

    Raises InterfaceError when the library does not fit the chips' plans, and what `build_runtime` raises.
    """
    # operators are the rules', whatever compiles the kernels: their root is not needed
    check_interfaces(request.root, make_plans(request))
    executions = execution_targets(request, (RUNTIME,), observer=observer)
    built = build_runtime(
        request.root,
        cache=request.cache,
        jobs=request.jobs,
        environment=request.environment,
        execution=executions.runtime,
    )
    said = {
        "kind": KIND,
        "platform": PLATFORM,
        "identity": library_identity(request.root, executions.runtime),
        "inputs": built.inputs,
        "compiler": built.compiler,
        "glibc": built.glibc,
        "library": built.sha256,
    }
    folder = request.output or request.root / "releases" / "parts"
    data = archive.encode(Part(about=said, files=_files(built.prefix)))
    write_atomic(folder / NAME, data)
    what = f"runtime for {PLATFORM}, needs glibc {built.glibc}"
    return PartReport(what=what, path=folder / NAME, size=len(data))


def library_identity(root: Path, execution: ExecutionTarget | None) -> dict[str, str]:
    """What the runtime of a checkout is made from, and the root whose tools make it, "" for a machine's own, which may be any.

    SHA-256 by field. Raises ManifestError.
    """
    rootfs = execution.rootfs if execution is not None else None
    manifest = load_runtime_manifest(root / "manifests").model_dump_json()
    return {
        "sources": source_digest(root / "runtime"),
        "manifest": hashlib.sha256(manifest.encode()).hexdigest(),
        "root": rootfs.identity if rootfs is not None else "",
    }


def unpack_library(part: Part, prefix: Path) -> None:
    """Write the part's files below the folder `prefix`, which must be empty."""
    for name, file in part.files.items():
        path = prefix / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.link:
            path.symlink_to(file.link)
        else:
            path.write_bytes(file.content)
            path.chmod(0o755 if file.executable else 0o644)


def _files(prefix: Path) -> dict[str, PartFile]:
    found = {}
    for path in sorted(prefix.rglob("*")):
        name = path.relative_to(prefix).as_posix()
        if path.is_symlink():
            found[name] = PartFile(link=str(path.readlink()))
        elif path.is_file():
            found[name] = PartFile(content=path.read_bytes(), executable=bool(path.stat().st_mode & 0o100))
    return found
