"""Tasks for packagers of AMD's own AOTriton: its images, and their verification through its library."""

import os
import re
from pathlib import Path
from typing import Annotated

from aotforge.base.progress import Report
from aotforge.cli.flags import command
from aotforge.cli.output import Output
from aotforge.cli.settings import HOME, ROOT
from aotforge.cli.values import Arch, Cache, absolute, archs_of, cache_folder, job_count, names
from aotforge.errors import UsageError

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
    arch: Arch,
    console: Output,
    output: Annotated[str, "folder that gets aotriton.images, SHA256SUMS, the record and the texts"],
    triton: Packages = None,
    head_dims: HeadDims = None,
    only: Functionals = "",
    skip_failed: Annotated[bool, "pack an empty image for a failure and list it in the record"] = False,
    cache: Cache = None,
    jobs: Annotated[int | None, "worker processes at most"] = None,
) -> Report:
    """Build the image packs of AMD's own AOTriton from a checkout of it: offline, cached, none empty.

    ./dev upstream.images ../aotriton --arch gfx90a --head-dims 64,128 --output packs
    """
    from aotforge.upstream.images import UpstreamRequest, build_images

    request = UpstreamRequest(
        root=ROOT,
        source=Path(checkout).absolute(),
        archs=archs_of(arch),
        packages=absolute(triton) or HOME / "triton-3.7.0",
        output=Path(output).absolute(),
        cache=cache_folder(cache),
        environment=dict(os.environ),
        head_dims=_head_dims(head_dims),
        only=_pattern(only),
        skip_failed=skip_failed,
        jobs=job_count(jobs),
    )
    with console.build() as display:
        return build_images(request, observer=display)


@command("upstream.verify")
def upstream_verify(
    prefix: Annotated[str, "where AOTriton's own library is installed"],
    images: Annotated[str, "what ./dev upstream.images has written"],
    console: Output,
    only: Functionals = "",
    cache: Cache = None,
) -> Report:
    """Execute AOTriton's images on the virtual GPU, called through its own library; compare with float64.

    ./dev upstream.verify /opt/aotriton packs
    """
    from aotforge.upstream.verify import VerifyRequest, verify_images

    request = VerifyRequest(
        root=ROOT,
        prefix=Path(prefix).absolute(),
        images=Path(images).absolute(),
        cache=cache_folder(cache),
        only=_pattern(only),
    )
    with console.build() as display:
        return verify_images(request, observer=display)


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
