"""A release: built, finalized with attestations and signature, checked for compatibility, recorded."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from aotforge.base.progress import Observer
from aotforge.errors import ReleaseError
from aotforge.formats.archive import sha256_file
from aotforge.formats.sums import TAR_SUMS, read_sums
from aotforge.library.sources import load_runtime_manifest
from aotforge.pipeline.build_release import BuildReport, build, file_fields
from aotforge.pipeline.build_windows import WindowsReport, build_windows
from aotforge.pipeline.display import BuildObserver
from aotforge.pipeline.requests import BuildRequest, ReleaseRequest, ToolsRequest, WindowsRequest
from aotforge.release.finalize import finalize_release
from aotforge.release.model import RELEASE_JSON, BuildTools, Origin, load_release_manifest, member_time
from aotforge.release.record import check_record, make_record, save_record, source_commit
from aotforge.release.release import Release
from aotforge.release.signing import load_private_key
from aotforge.release.wheels import build_package, make_wheels

if TYPE_CHECKING:
    from aotforge.conformance.findings import CheckReport


@dataclass(frozen=True, kw_only=True)
class ReleaseReport:
    """A finalized release. `record` is the file to commit, None for a development release."""

    build: BuildReport
    windows: WindowsReport | None
    finished: Release
    origin: Origin
    checks: CheckReport
    record: Path | None

    def fields(self) -> dict[str, object]:
        """JSON values."""
        done, built = self.finished, self.build
        return {
            "release": self.origin.release,
            "folder": str(done.folder),
            "fresh": done.fresh,
            "signed": done.signed,
            "commit": self.origin.commit,
            "executor": self.origin.tools.executor,
            "roots": dict(self.origin.tools.roots),
            "archs": self.origin.archs,
            **{name: getattr(built, name) for name in ("compiled", "cached", "executed", "known")},
            "checks": {status: len(self.checks.of(status)) for status in ("passed", "failed", "not run")},
            "record": str(self.record) if self.record else None,
            "files": file_fields(done.files),
        }

    def lines(self) -> list[str]:
        """Lines of text."""
        done, built, checks = self.finished, self.build, self.checks
        counts = "nothing to build, the same sources were built before"
        if built.release.fresh:
            counts = (
                f"{built.compiled} compiled, {built.cached} from the cache; "
                f"{built.executed} executed, {built.known} verified before"
            )
        record = "a development release: not recorded, not to be published"
        return [
            f"{self.origin.release} for {', '.join(self.origin.archs)}: {counts}",
            *(f"{file.size:>12,}  {done.folder / file.name}" for file in done.files),
            f"{len(checks.of('passed'))} checks passed, {len(checks.of('not run'))} not run",
            "signed" if done.signed else "not signed",
            f"commit its record: git add {self.record}" if self.record else record,
        ]


def release(request: ReleaseRequest, *, observer: BuildObserver) -> ReleaseReport:
    """Everything up to a folder that can be published. Raises CompatError with every violated check."""
    root = request.root
    # a missing key is reported at once instead of after an hour
    key = None if request.unsigned else load_private_key(request.key, request.environment)
    manifest = load_release_manifest(root / "manifests" / "release.yaml", request.version)
    commit = source_commit(root, development=request.development)
    archs = request.archs or request.checkout.architectures.emulated
    same: dict[str, Any] = {field.name: getattr(request, field.name) for field in fields(ToolsRequest)}
    same["version"] = request.version
    built = build(BuildRequest(archs=archs, profile=request.profile, **same), observer=observer)
    if built.release.contents.development and not request.development:
        reasons = "\n".join(f"  {reason}" for reason in built.release.contents.development)
        raise ReleaseError(
            f"{built.release.name} is a development build:\n{reasons}",
            cause="a release must have what its file names promise",
            hint="--executor docker (or podman, bubblewrap) builds the library for the promised platform, "
            "a complete profile all images",
        )
    windows = build_windows(WindowsRequest(**same), observer=observer) if request.windows else None
    extra = [windows.file] if windows else []
    roots = sorted({*built.roots, *(windows.roots if windows else ())})
    zstd = load_runtime_manifest(root / "manifests").zstd
    tools = BuildTools(
        toolchain=built.plans[0].toolchain,
        compiler=built.compiler,
        zstd=(zstd.file, zstd.sha256),
        executor=built.executor,
        roots=tuple(roots),
    )
    origin = Origin(
        release=manifest.name,
        commit=commit,
        archs=tuple(arch for plan in built.plans for arch in plan.archs),
        profile=built.plans[0].profile,
        platforms=("linux", "windows") if windows else ("linux",),
        epoch=member_time(manifest, request.environment),
        tools=tools,
    )
    record = None
    if not request.development:  # before anything is written: a recorded release is never replaced by another
        folder = built.release.folder
        tars = read_sums(folder / TAR_SUMS) | {path.name: sha256_file(path) for path in extra}
        record = make_record(origin, contents=built.release.contents, tars=tars)
        record = check_record(root / "releases", record)
        origin = replace(origin, commit=record.commit)
    observer.stage("attestations and signature")
    checks: list[CheckReport] = []
    with tempfile.TemporaryDirectory(prefix="aotforge-wheels-") as scratch:
        wheels: list[Path] = []
        if request.wheels:
            packs = {plan.pack: plan.archs for plan in built.plans}
            wheels = make_wheels(
                built.release.folder,
                manifest,
                origin,
                packs,
                Path(scratch),
                windows=windows.file if windows else None,
            )
            wheels += [build_package(root, Path(scratch))]
        finished = finalize_release(
            built.release.folder,
            extra=[*extra, *wheels],
            origin=origin,
            plans=built.plans,
            output=request.output or root / "releases" / "dist" / "finished",
            key=key,
            builder=request.builder,
            approve=lambda folder: checks.append(_checked(request, folder, observer)),
        )
    saved = save_record(root / "releases", record) if record else None
    return ReleaseReport(
        build=built, windows=windows, finished=finished, origin=origin, checks=checks[0], record=saved
    )


def finished_before(request: ReleaseRequest) -> Release | None:
    """What an earlier run of the same request has finished from the present commit: its files are read again.

    Raises ReleaseError for a damaged folder, and as `source_commit`.
    """
    root = request.root
    manifest = load_release_manifest(root / "manifests" / "release.yaml", request.version)
    folder = (request.output or root / "releases" / "dist" / "finished") / manifest.name
    recorded = root / "releases" / f"{manifest.name}.json"
    if request.development or not recorded.is_file() or not (folder / RELEASE_JSON).is_file():
        return None
    made = Release.open(folder)
    made.check_files()
    origin, profiles = made.description().origin, request.checkout.profiles
    archs = request.archs or request.checkout.architectures.emulated
    wanted = (source_commit(root, development=False), {*archs}, request.profile or profiles.default)
    same = wanted == (origin["commit"], {*cast(tuple[str, ...], origin["archs"])}, origin["profile"])
    has = {"wheels": any(name.endswith(".whl") for name in made.sums), "signed": made.signed}
    complete = has["wheels"] >= request.wheels and has["signed"] >= (not request.unsigned)
    return made if same and complete and ("windows" in str(origin["platforms"])) >= request.windows else None


def _checked(request: ReleaseRequest, folder: Path, observer: Observer) -> CheckReport:
    from aotforge.conformance.check_release import check_release  # noqa: PLC0415 - 100 ms, needed last
    from aotforge.conformance.findings import require_ok  # noqa: PLC0415 - 100 ms, as above

    observer.stage("compatibility checks")
    report = check_release(
        folder,
        checkout=request.root,
        cache=request.cache,
        jobs=request.jobs,
        development=request.development,
    )
    require_ok(report)
    return report
