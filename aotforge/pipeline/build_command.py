"""The programs of `build`: a release, the library for Windows, a shard, a merge of shards."""

from aotforge.base.progress import Report
from aotforge.errors import ShardError, UnknownNameError, UnsupportedError, suggest
from aotforge.pipeline.build_release import build
from aotforge.pipeline.display import BuildObserver
from aotforge.pipeline.requests import BuildRequest

PLATFORMS = ("linux", "windows")


def run_build(request: BuildRequest, *, observer: BuildObserver) -> Report:
    """The program that the request selects. Raises what `check_options` and the program raise."""
    check_options(request)
    if request.platform == "windows":
        from aotforge.pipeline.build_windows import build_windows  # noqa: PLC0415 - 13 ms of a no-op build

        return build_windows(request, observer=observer)
    if request.gather:
        from aotforge.pipeline.shards.merge import merge_shards  # noqa: PLC0415 - 11 ms of a no-op build

        return merge_shards(request, request.gather, observer=observer)
    if request.shard:
        from aotforge.pipeline.shards.make_shards import build_shards  # noqa: PLC0415 - 11 ms of a no-op build

        return build_shards(request, request.shard, observer=observer)
    return build(request, observer=observer)


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
