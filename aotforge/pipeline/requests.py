"""Requests of the pipeline's tasks. An annotated field is a flag of its tasks, with this help."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

if TYPE_CHECKING:
    from aotforge.plan.checkout import Checkout

Archs = Annotated[
    tuple[str, ...],
    "arch or product, e.g. gfx908 or MI100, several separated by commas; native: this machine's GPUs",
]
ONLY = "families, kernels or operators, e.g. flash, flash.bwd_dq or attn_bwd; several are separated by commas"
Executor = Annotated[
    str,
    "where things are compiled: local (the default), docker, podman, bubblewrap, or auto: the first of these "
    "that works",
]
CACHE_TO = "shared cache to read from and to write to: s3://BUCKET/PREFIX or a folder"
SETTING = "setting"
"""Marks a field that is a key of aotforge.toml and no flag."""
Version = Annotated[
    str | None, "API level of the library, e.g. 0.13b (default: that of manifests/release.yaml)"
]
_OUTPUT = "folder that gets <release>/ (default: releases/dist{})"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Request:
    """Every request: the checkout `root`, the cache, and the caller's `environment`."""

    root: Path
    cache: Annotated[Path, "cache folder (default: AOTFORGE_CACHE, else .aotforge/cache)"]
    jobs: Annotated[
        int | None, "worker processes at most (default: as many as CPUs and free memory allow)"
    ] = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def checkout(self) -> "Checkout":
        """The checkout's manifests and rules, for every stage of the task."""
        from aotforge.plan.checkout import Checkout  # noqa: PLC0415 - pydantic: 60 ms of `./dev --list`

        return Checkout(self.root)

    @property
    def kernels(self) -> Path:
        """Folder of the kernel families."""
        return self.checkout.kernels


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ImagesRequest(Request):
    """Images of a profile for `archs`, which may need several image packs."""

    archs: Archs = ()
    profile: Annotated[
        str | None, "smoke, quick, core (the default), serving or full; see manifests/profiles.yaml"
    ] = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CachedRequest(ImagesRequest):
    """Images that shared caches may have (docs/scale.md) and a cluster may make; none by default."""

    cache_from: Annotated[
        str | None,
        "shared cache to read from: s3://BUCKET/PREFIX, http(s)://... or a folder "
        "(default: AOTFORGE_CACHE_FROM)",
    ] = None
    cache_to: Annotated[str | None, CACHE_TO, SETTING] = None
    cache_root: Annotated[Path | None, "root of trust of the cache to read from, a file", SETTING] = None
    cache_keys: Annotated[Path | None, "folder of the keys of the cache to write to", SETTING] = None
    cache_limit: Annotated[
        float,
        "GiB of the cache folder's images, verdicts and libraries at most, and of the shared cache that is "
        "written; what was not used for longest is removed",
        SETTING,
    ] = 20.0
    scheduler: Annotated[
        str | None,
        "Dask scheduler whose workers compile and verify, tls://HOST:PORT (docs/scale.md)",
        SETTING,
    ] = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ToolsRequest(Request):
    """Compilers in an executor."""

    executor: Executor = "local"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PartRequest(CachedRequest, ToolsRequest):
    """A part of a build's images, compiled and verified into the caches, or packs for the source route."""

    part: Annotated[str, "which part: NUMBER/COUNT, e.g. 2/5"] = "1/1"
    cache_to: Annotated[str | None, CACHE_TO] = None
    only: Annotated[tuple[str, ...], ONLY] = ()
    verify: Annotated[bool, "execute every image on the virtual GPU"] = True
    job: Annotated[str | None, "instead one job without the cache, by label or key (./dev plan)"] = None
    minutes: Annotated[float, "with --output: minutes that one kernel may take; 0: no limit"] = 10.0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BuildRequest(CachedRequest, ToolsRequest):
    """A release for Linux."""

    only: Annotated[tuple[str, ...], f"{ONLY}; the release is a development build"] = ()
    version: Version = None
    output: Annotated[Path | None, _OUTPUT.format(", or releases/dist/<profile> for incomplete profiles")] = (
        None
    )
    verify: Annotated[
        bool, "execute every image on the virtual GPU; without it the release is a development build"
    ] = True
    unexecuted: Annotated[
        bool, "pack images that no virtual GPU executes (NVIDIA): a development build that lists them"
    ] = False


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WindowsRequest(ToolsRequest):
    """The library for Windows as a zip file and a wheel, with images that were built on Linux."""

    version: Version = None
    output: Annotated[Path | None, _OUTPUT.format("/windows")] = None
    images: Annotated[
        tuple[Path, ...], "image tarballs, pack folders or release folders, separated by commas"
    ] = ()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class VerifyRequest(CachedRequest):
    """Images of `archs` and `profile`, or those of the folder `release`, from which `archs` selects."""

    only: Annotated[tuple[str, ...], ONLY] = ()
    release: Annotated[
        Path | None, "verify this release folder from its own archives (--arch selects from its archs)"
    ] = None
    device: Annotated[
        bool, "execute NVIDIA images on a GPU of this machine; without one they are skipped"
    ] = False


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReleaseRequest(ImagesRequest):
    """A release to build, check, sign and record. Without `archs`: all that a complete profile may have."""

    version: Annotated[
        str,
        "API level such as 0.13b, or release 0.13b-r1 (manifests/release.yaml has the revision); all: one of "
        "every level, after one another",
    ]
    executor: Annotated[str, "as for build (default: auto, in a container)"] = "auto"
    windows: Annotated[bool, "also the library for Windows (default); --no-windows omits it"] = True
    wheels: Annotated[
        bool, "also wheels: the library and the images for pip, and the console script (docs/installing.md)"
    ] = False
    to: Annotated[str | None, "publish it there: s3://BUCKET/PREFIX or a folder"] = None
    key: Annotated[Path | None, "Ed25519 key to sign with, PEM (default: AOTFORGE_SIGNING_KEY)"] = None
    keys: Annotated[str | None, "with --to: folder of the index's keys (default: AOTFORGE_KEYS)"] = None
    unsigned: Annotated[bool, "without a signature"] = False
    builder: Annotated[str, "URI of the builder, for the provenance statement"] = (
        "urn:aotforge:builder:unnamed"
    )
    development: Annotated[
        bool, "for local use: uncommitted sources, incomplete, below the promised platform; no record"
    ] = False
    dry_run: Annotated[bool, "with --to: list what would be sent"] = False
    output: Annotated[Path | None, _OUTPUT.format("/finished")] = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReproduceRequest:
    """A recorded release to build again. `root` is a checkout whose history has the record and its commit."""

    root: Path
    release: Annotated[str, "a released version, e.g. 0.11.2b-r1, with a record in releases/"]
    published: Annotated[
        Path | None,
        "folder with its files: its archives are compared, too, and explain a difference",
    ] = None
    work: Annotated[Path | None, "empty folder that keeps what is built (default: a temporary one)"] = None
    cache: Annotated[Path, "cache whose container root filesystems are used, nothing else of it"]
    home: Path
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CiRequest(ImagesRequest):
    """Jobs of continuous integration that compile parts of a build."""

    minutes: Annotated[float, "minutes that a job may take, by the estimate"] = 5.0
