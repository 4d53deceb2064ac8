"""The programs of `build`: a release, the library for Windows, a shard, a merge of shards."""

from dataclasses import replace

from aotforge.base.progress import Report
from aotforge.errors import ShardError, UnknownNameError, UnsupportedError, suggest
from aotforge.pipeline.build_release import AssembledReport, Package, build
from aotforge.pipeline.display import BuildObserver
from aotforge.pipeline.requests import BuildRequest
from aotforge.release.model import load_release_manifest

PLATFORMS = ("linux", "windows")
FORMATS = ("release", "hf-kernel")


def run_build(request: BuildRequest, *, observer: BuildObserver) -> Report:
    """The program that the request selects. Raises what `check_options` and the program raise."""
    check_options(request)
    if request.platform == "windows":
        from aotforge.pipeline.build_windows import build_windows  # noqa: PLC0415 - 13 ms of a no-op build

        return build_windows(request, observer=observer)
    if request.gather:
        from aotforge.pipeline.shards.merge import merge_shards  # noqa: PLC0415 - 11 ms of a no-op build

        return _with_package(merge_shards(request, request.gather, observer=observer), request, observer)
    if request.shard:
        from aotforge.pipeline.shards.make_shards import build_shards  # noqa: PLC0415 - 11 ms of a no-op build

        return build_shards(request, request.shard, observer=observer)
    return _with_package(build(request, observer=observer), request, observer)


def _with_package(report: AssembledReport, request: BuildRequest, observer: BuildObserver) -> AssembledReport:
    """The report with the package of the requested format."""
    if request.format == "release":
        return report
    from aotforge.library.operator_functions import declared_functions  # noqa: PLC0415 - not for other builds
    from aotforge.release.hf_kernel import write_hf_kernel  # noqa: PLC0415 - not for other builds

    observer.stage("package")
    release = report.release.folder
    folder = release.with_name(f"{release.name}-{request.format}")
    manifest = load_release_manifest(request.root / "manifests" / "release.yaml").at(request.version)
    archs = {plan.pack: plan.archs for plan in report.plans}
    variants = write_hf_kernel(release, manifest, archs, declared_functions(request.kernels), folder)
    return replace(report, package=Package(format=request.format, folder=folder, variants=variants))


def check_options(request: BuildRequest) -> None:
    """Checks that the options of a build fit together. Raises UnknownNameError, UnsupportedError, ShardError."""
    if request.platform not in PLATFORMS:
        raise UnknownNameError(
            f"unknown platform {request.platform!r}", hint=suggest(request.platform, PLATFORMS)
        )
    if request.platform == "windows" and (request.archs or request.profile or request.only):
        raise UnsupportedError(
            "images are not built for Windows: --arch, --profile and --only do not fit --platform windows",
            cause="Windows uses the images of the Linux build, unchanged",
            hint="build them without --platform, then add them: --platform windows --images FOLDER",
        )
    if request.format not in FORMATS:
        raise UnknownNameError(f"unknown format {request.format!r}", hint=suggest(request.format, FORMATS))
    if request.format != "release" and (request.platform == "windows" or request.shard):
        raise UnsupportedError(
            f"--format {request.format} does not fit --platform windows and --shard",
            cause="the package has the operator library for Linux and the images of a complete release",
            hint="./dev build without them, or with --gather",
        )
    if (request.cache_from or request.cache_to) and (request.platform == "windows" or request.gather):
        raise UnsupportedError(
            "--cache-from and --cache-to do not fit --platform windows and --gather",
            cause="shared caches have images, verdicts and libraries for Linux, and a merge takes all from its shards",
            hint="./dev build without them",
        )
    if request.platform == "windows":
        return
    if request.images:
        raise UnsupportedError("--images needs --platform windows", hint="./dev build without --images")
    if not request.archs:
        raise UnsupportedError("--arch is missing", hint="./dev build --arch gfx908")
    if request.only and (request.shard or request.gather):
        raise UnsupportedError(
            "--only does not fit --shard and --gather",
            cause="shards are parts of a complete build",
            hint="./dev build --only without them",
        )
    if request.shard and request.gather:
        raise ShardError(
            "--shard makes a shard and --gather merges shards", hint="./dev build with one of the two"
        )
