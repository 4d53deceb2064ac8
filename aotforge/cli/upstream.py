"""Tasks for packagers of AMD's own AOTriton: its images, and their verification through its library."""

import os
import re
from pathlib import Path
from typing import Annotated

from aotforge.base.progress import Report
from aotforge.cli.flags import command, make_request
from aotforge.cli.output import Output
from aotforge.cli.settings import HOME, ROOT
from aotforge.cli.values import Arch, Cache, absolute, archs_of, cache_folder, job_count, names
from aotforge.errors import UsageError
from aotforge.pipeline.requests import CACHE_TO

Functionals = Annotated[
    str, "functionals alone whose name has this regular expression, e.g. 'attn_fwd;.*fp16'"
]

Checkout = Annotated[str, "a checkout of ROCm/aotriton, tag 0.13b"]
Packages = Annotated[str | None, "folder made by pip install --target (default: triton-3.7.0 in the home)"]
HeadDims = Annotated[str | None, "of the generator, two or more: 64,128 (default: all)"]


@command("upstream.library")
def upstream_library(
    checkout: Checkout,
    arch: Arch,
    console: Output,
    output: Annotated[str, "prefix that gets the library, headers, CMake package and SHA256SUMS"],
    hip: Annotated[str | None, "folder of ROCm or of HIP's headers (default: those of --triton)"] = None,
    triton: Packages = None,
    head_dims: HeadDims = None,
    cache: Cache = None,
    jobs: Annotated[int | None, "compilers at once"] = None,
) -> Report:
    """Build AMD's own AOTriton library without images from a checkout of it: offline and reproducibly.

    ./dev upstream.library ../aotriton --arch gfx90a --head-dims 64,128 --output /opt/aotriton
    """
    from aotforge.upstream.library import LibraryRequest, build_library

    request = LibraryRequest(
        source=Path(checkout).absolute(),
        archs=archs_of(arch),
        packages=absolute(triton) or HOME / "triton-3.7.0",
        output=Path(output).absolute(),
        cache=cache_folder(cache),
        environment=dict(os.environ),
        head_dims=_head_dims(head_dims),
        hip=absolute(hip),
        jobs=job_count(jobs),
    )
    with console.build() as display:
        return build_library(request, observer=display)


@command("upstream.images")
def upstream_images(
    checkout: Checkout,
    console: Output,
    output: Annotated[
        str | None, "folder that gets aotriton.images, SHA256SUMS, the record and the texts"
    ] = None,
    arch: Annotated[str | None, "archs or products, separated by commas"] = None,
    triton: Packages = None,
    head_dims: HeadDims = None,
    only: Functionals = "",
    record: Annotated[
        str | None, "record.json of another build: the same archs and functionals, compared"
    ] = None,
    skip_failed: Annotated[bool, "pack an empty image for a failure and list it in the record"] = False,
    part: Annotated[str | None, "instead of packs one of several parts, into the caches: 2/5"] = None,
    cache_from: Annotated[str | None, "shared cache to read from (default: AOTFORGE_CACHE_FROM)"] = None,
    cache_to: Annotated[str | None, CACHE_TO] = None,
    cache: Cache = None,
    jobs: Annotated[int | None, "worker processes at most"] = None,
) -> Report:
    """Build the image packs of AMD's own AOTriton from a checkout of it: offline, cached, none empty.

    ./dev upstream.images ../aotriton --arch gfx90a --head-dims 64,128 --output packs
    """
    from aotforge.pipeline.requests import CachedRequest
    from aotforge.pipeline.shared_cache import shared_objects
    from aotforge.upstream.images import UpstreamRequest, build_images, compile_part, read_recorded

    recorded = read_recorded(Path(record)) if record else None
    if recorded is None and not arch:
        raise UsageError("neither --arch nor --record names what to build", hint="--arch gfx90a")
    if not output and not part:
        raise UsageError("--output is missing", hint="--output packs, or --part 1/2 without packs")
    places = make_request(CachedRequest, {"cache": cache, "cache_from": cache_from, "cache_to": cache_to})
    request = UpstreamRequest(
        root=ROOT,
        source=Path(checkout).absolute(),
        archs=tuple(recorded["archs"]) if recorded else archs_of(arch),
        packages=absolute(triton) or HOME / "triton-3.7.0",
        output=Path(output or "").absolute(),
        cache=places.cache,
        environment=places.environment,
        head_dims=tuple(recorded["head_dims"]) if recorded else _head_dims(head_dims),
        only=recorded["only"] if recorded else _pattern(only),
        skip_failed=skip_failed,
        record=recorded,
        jobs=job_count(jobs),
    )
    with console.build() as display, shared_objects(places, display.note) as shared:
        if part:
            return compile_part(request, part, observer=display, shared=shared)
        return build_images(request, observer=display, shared=shared)


@command("upstream.verify")
def upstream_verify(
    prefix: Annotated[str, "where AOTriton's own library is installed"],
    images: Annotated[str, "what ./dev upstream.images has written"],
    console: Output,
    only: Functionals = "",
    cache: Cache = None,
    jobs: Annotated[int | None, "processes at once"] = None,
) -> Report:
    """Execute AOTriton's images on the virtual GPU, called through its own library; compare with float64.

    ./dev upstream.verify /opt/aotriton packs
    """
    # its processes keep every CPU busy, and threads of numpy would wait in loops
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    from aotforge.upstream.verify import VerifyRequest, verify_images

    request = VerifyRequest(
        root=ROOT,
        prefix=Path(prefix).absolute(),
        images=Path(images).absolute(),
        cache=cache_folder(cache),
        only=_pattern(only),
        jobs=job_count(jobs),
    )
    with console.build() as display:
        return verify_images(request, observer=display)


@command("upstream.release")
def upstream_release(
    prefix: Annotated[str, "what ./dev upstream.library has installed"],
    images: Annotated[str, "what ./dev upstream.images has written"],
    verdicts: Annotated[str, "what ./dev upstream.verify --json has printed"],
    output: Annotated[str, "folder of releases"],
    console: Output,
    version: Annotated[str, "name of the release: AOTriton's version and your revision"] = "0.13b-r1",
    key: Annotated[str | None, "Ed25519 key to sign with, PEM (default: AOTFORGE_SIGNING_KEY)"] = None,
    unsigned: Annotated[bool, "without a signature"] = False,
) -> Report:
    """Make a release of AMD's own AOTriton: library, executed images and texts as tarballs, signed.

    ./dev upstream.release /opt/aotriton packs verdicts.json --output dist --key key.pem
    """
    from aotforge.formats.api_level import level_of
    from aotforge.pipeline.requests import ReleaseRequest
    from aotforge.release.model import load_release_manifest, member_time
    from aotforge.release.signing import load_private_key
    from aotforge.upstream.release import PackagingRequest, make_release

    manifest = load_release_manifest(ROOT / "manifests" / "release.yaml", level_of(version))
    request = PackagingRequest(
        prefix=Path(prefix).absolute(),
        images=Path(images).absolute(),
        verdicts=Path(verdicts).absolute(),
        output=Path(output).absolute(),
        name=version,
        manifest=manifest,
        epoch=member_time(manifest, os.environ),
        key=None if unsigned else load_private_key(absolute(key), os.environ),
        builder=ReleaseRequest.builder,
    )
    return make_release(request)


def _head_dims(text: str | None) -> tuple[int, ...]:
    """The numbers of a flag. Raises UsageError."""
    if not all(word.isdecimal() for word in names(text)):
        raise UsageError(f"--head-dims {text} is not a list of numbers", hint="--head-dims 64,128")
    return tuple(map(int, names(text)))


def _pattern(text: str) -> str:
    """A regular expression. Raises UsageError."""
    try:
        re.compile(text)
    except re.error as error:
        raise UsageError(
            f"--only {text} is not a regular expression: {error}",
            hint="escape brackets and * with a backslash",
        ) from error
    return text
