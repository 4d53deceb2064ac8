"""`invoke release`: build what is missing, finish it with its papers, hold it against the compatibility matrix, record it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from aotforge.base.architectures import load_architectures
from aotforge.base.progress import Observer
from aotforge.errors import ReleaseError, UnsupportedError
from aotforge.formats.archive import sha256_file
from aotforge.formats.sums import TAR_SUMS, read_sums
from aotforge.pipeline.build_release import BuildReport, BuildRequest, build
from aotforge.pipeline.build_windows import WindowsReport, WindowsRequest, build_windows
from aotforge.pipeline.display import BuildObserver
from aotforge.release.finalize import FinalizedRelease, finalize_release
from aotforge.release.model import MANIFEST
from aotforge.release.origin import Origin, build_tools, source_commit
from aotforge.release.record import Record, check_record, make_record, save_record
from aotforge.release.release_manifest import ReleaseManifest, load_release_manifest, member_time

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from aotforge.conformance.findings import CheckReport


@dataclass(frozen=True, kw_only=True)
class ReleaseRequest:
    """What to release. `version` is the API level (0.11.2b) or the whole name (0.11.2b-r1). `build` says what of; without chips, all that a
    complete profile may hold. `key` signs, None leaves the release unsigned; `builder` is a URI that names who builds. `development` makes
    a release for oneself: from changed sources, below the promised platform, or incomplete; it gets no record."""

    version: str
    build: BuildRequest
    windows: bool
    output: Path
    key: Ed25519PrivateKey | None
    builder: str
    development: bool = False


@dataclass(frozen=True, kw_only=True)
class ReleaseReport:
    """What came of it. `record` is the file to commit, None for a development release."""

    build: BuildReport
    windows: WindowsReport | None
    finished: FinalizedRelease
    origin: Origin
    checks: CheckReport
    record: Path | None


def release(request: ReleaseRequest, *, observer: BuildObserver) -> ReleaseReport:
    """Everything up to a folder that can be published. Raises AotforgeError: ReleaseError for a request that makes no release, CompatError with
    every violated check; then nothing is recorded."""
    root = request.build.root
    manifest = load_release_manifest(root / "manifests" / "release.yaml")
    _check_version(manifest, request.version)
    commit = source_commit(root, development=request.development)
    wanted = request.build.archs or _all_archs(root)
    built = build(
        replace(request.build, archs=wanted),
        observer=observer,
    )
    _require_no_development(built, development=request.development)
    windows = _windows(request, observer) if request.windows else None
    extra = [windows.file] if windows else []
    roots = sorted({*built.roots, *(windows.roots if windows else ())})
    tools = build_tools(
        root, built.plans[0].toolchain, compiler=built.compiler, executor=built.executor, roots=roots
    )
    origin = Origin(
        release=manifest.name,
        commit=commit,
        archs=tuple(arch for plan in built.plans for arch in plan.archs),
        profile=built.plans[0].profile,
        platforms=("linux", "windows") if windows else ("linux",),
        epoch=member_time(manifest, request.build.environment),
        tools=tools,
    )
    record = None
    if not request.development:  # before anything is written: a recorded release is never replaced by another
        record = check_record(root / "releases", _make_record(origin, built.release.folder, extra))
        origin = replace(origin, commit=record.commit)
    observer.stage("attestations and signature")
    checks: list[CheckReport] = []
    finished = finalize_release(
        built.release.folder,
        extra=extra,
        origin=origin,
        plans=built.plans,
        output=request.output,
        key=request.key,
        builder=request.builder,
        approve=lambda folder: checks.append(_checked(request, folder, observer)),
    )
    saved = save_record(root / "releases", record) if record else None
    return ReleaseReport(
        build=built, windows=windows, finished=finished, origin=origin, checks=checks[0], record=saved
    )


def default_output(root: Path) -> Path:
    """Where finished releases go, one folder each; what `invoke build` makes lies beside."""
    return root / "releases" / "dist" / "finished"


def _check_version(manifest: ReleaseManifest, version: str) -> None:
    if version not in {manifest.api_level, manifest.name}:
        raise UnsupportedError(
            f"version {version} cannot be released from these sources: they make {manifest.name}",
            cause="manifests/release.yaml names API level and revision, and they are part of every output",
            hint=f"--version {manifest.api_level}; for another revision change `revision` there, for another API level its headers",
        )


def _all_archs(root: Path) -> tuple[str, ...]:
    return tuple(load_architectures(root / "manifests").architectures)


def _require_no_development(built: BuildReport, *, development: bool) -> None:
    if built.release.development and not development:
        reasons = "\n".join(f"  {reason}" for reason in built.release.development)
        raise ReleaseError(
            f"{built.release.name} is a development build:\n{reasons}",
            cause="a release must hold what its file names promise",
            hint="--executor docker (or podman, bubblewrap) builds the library for the promised platform; a complete profile holds all images",
        )


def _windows(request: ReleaseRequest, observer: Observer) -> WindowsReport:
    asked = request.build
    wanted = WindowsRequest(
        root=asked.root,
        output=asked.output / "windows" if asked.output else None,
        cache=asked.cache,
        jobs=asked.jobs,
        environment=asked.environment,
        executor=asked.executor,
        keep=asked.keep,
    )
    return build_windows(wanted, observer=observer)


def _checked(request: ReleaseRequest, folder: Path, observer: Observer) -> CheckReport:
    from aotforge.conformance.check_release import check_release  # noqa: PLC0415 - slow to import, and last to run
    from aotforge.conformance.findings import require_ok  # noqa: PLC0415

    observer.stage("compatibility checks")
    report = check_release(
        folder,
        checkout=request.build.root,
        cache=request.build.cache,
        jobs=request.build.jobs,
        development=request.development,
    )
    require_ok(report)
    return report


def _make_record(origin: Origin, folder: Path, extra: Sequence[Path]) -> Record:
    """The record of what a build made in `folder`, and of the archives beside it."""
    manifest = json.loads((folder / MANIFEST).read_bytes())
    tars = read_sums(folder / TAR_SUMS)
    return make_record(
        origin, manifest=manifest, tars=tars | {path.name: sha256_file(path) for path in extra}
    )


def report_fields(report: ReleaseReport) -> dict[str, object]:
    """The report for `--json`."""
    done = report.finished
    return {
        "release": report.origin.release,
        "folder": str(done.folder),
        "fresh": done.fresh,
        "signed": done.signed,
        "commit": report.origin.commit,
        "executor": report.origin.tools.executor,
        "roots": dict(report.origin.tools.roots),
        "archs": report.origin.archs,
        "compiled": report.build.compiled,
        "cached": report.build.cached,
        "executed": report.build.executed,
        "known": report.build.known,
        "checks": {status: len(report.checks.of(status)) for status in ("passed", "failed", "not run")},
        "record": str(report.record) if report.record else None,
        "files": [
            {"name": file.name, "size": file.size, "sha256": file.sha256, "tar_sha256": file.tar_sha256}
            for file in done.files
        ],
    }


def report_lines(report: ReleaseReport) -> Sequence[str]:
    """The report for people."""
    done, built = report.finished, report.build
    counts = f"{built.compiled} compiled, {built.cached} from the cache; {built.executed} executed, {built.known} verified before"
    if not built.release.fresh:
        counts = "nothing to build, these sources made it before"
    lines = [f"{report.origin.release} for {', '.join(report.origin.archs)}: {counts}"]
    lines += [f"{file.size:>12,}  {done.folder / file.name}" for file in done.files]
    checks = report.checks
    lines.append(f"{len(checks.of('passed'))} checks passed, {len(checks.of('not run'))} not run")
    lines.append("signed" if done.signed else "not signed")
    if report.record:
        lines.append(f"commit its record: git add {report.record}")
    else:
        lines.append("a development release: not recorded, not to be published")
    return lines
